package nacos

// kind is what is asked of the server.
type kind uint8

// In the order in which they are done.
const (
	listNames kind = iota
	watchNames
	subscribe
	read    // what a service is now
	confirm // that a service has gone
	leave
	verify // that what is known of a service is so
	kinds
)

// task is something to ask the server. Either scope or service is set.
type task struct {
	kind    kind
	scope   scope
	service serviceName
}

// queue holds tasks, each at most once, those of an earlier kind first.
type queue struct {
	waiting map[task]bool
	lists   [kinds][]task // also tasks that were dropped
}

func newQueue() queue { return queue{waiting: map[task]bool{}} }

func (q *queue) add(t task) {
	if q.waiting[t] {
		return
	}
	q.waiting[t] = true
	q.lists[t.kind] = append(q.lists[t.kind], t)
}

func (q *queue) next() (task, bool) {
	for k := range q.lists {
		for len(q.lists[k]) > 0 {
			t := q.lists[k][0]
			q.lists[k] = q.lists[k][1:]
			if q.waiting[t] {
				delete(q.waiting, t)
				return t, true
			}
		}
	}
	return task{}, false
}

// drop takes back what was to be asked about a service.
func (q *queue) drop(n serviceName) {
	for k := subscribe; k < kinds; k++ {
		delete(q.waiting, task{kind: k, service: n})
	}
}
