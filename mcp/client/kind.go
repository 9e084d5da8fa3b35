package client

import (
	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/clusters/kube"
	"github.com/isthmus-mesh/isthmus/mcp"
)

// kind is what is known of one kind of configuration. Of its type URLs the newest is asked for first; while those that were
// asked for are empty, so is the next older one. What there is of the kind is the union of those asked for.
type kind struct {
	mcp.Kind
	feeds   []*feed
	applied map[string]*item    // what is in force, by "namespace/name"
	touched map[string]struct{} // names of what may differ from that

	// Of the stream at hand.
	asked   int  // so many of the feeds
	settled bool // all that were asked for have answered, and one of them has something or all are asked for
}

// feed is one type URL.
type feed struct {
	url     string
	kind    *kind
	at      int               // in kind.feeds
	objects map[string]*item  // what the server last had under it
	origin  string            // address of the server whose versions these are
	faults  map[string]string // what can't be used, by name; "" for what has none

	// Of the stream at hand.
	answered bool
	anew     bool   // the server was not told what the feed holds: its first response is all that there is
	accepted string // version that was accepted last
	refusals int    // in a row, of the same content
}

func newKinds() (kinds []*kind, byURL map[string]*feed) {
	byURL = map[string]*feed{}
	for _, k := range mcp.Kinds() {
		x := &kind{Kind: k, applied: map[string]*item{}, touched: map[string]struct{}{}}
		for i, url := range k.TypeURLs() {
			f := &feed{url: url, kind: x, at: i, objects: map[string]*item{}, faults: map[string]string{}}
			x.feeds = append(x.feeds, f)
			byURL[url] = f
		}
		kinds = append(kinds, x)
	}
	return kinds, byURL
}

// begin forgets what was of the stream before.
func (k *kind) begin() {
	k.asked, k.settled = 0, false
	for _, f := range k.feeds {
		f.answered, f.anew, f.accepted, f.refusals = false, false, "", 0
	}
}

// next gives the type URL to ask for now, nil if there is none. Until it is answered nobody knows whether the kind is empty.
func (k *kind) next() *feed {
	if k.asked == len(k.feeds) {
		return nil
	}
	for _, f := range k.feeds[:k.asked] {
		if !f.answered || len(f.objects) > 0 {
			return nil
		}
	}
	k.asked, k.settled = k.asked+1, false
	return k.feeds[k.asked-1]
}

// said reports whether the server has said what there is: all that was asked for is answered, and next has nothing more to ask
// for. Enough means that what was not answered will not be; but if only that is where objects were, nothing is known of these.
func (k *kind) said(enough bool) bool {
	answered, some, missing := 0, false, false
	for _, f := range k.feeds[:k.asked] {
		if f.answered {
			answered++
			some = some || len(f.objects) > 0
		} else {
			missing = missing || len(f.objects) > 0
		}
	}
	return answered > 0 && (answered == k.asked || enough && (some || !missing))
}

// find gives what is to be in force under a name, nil if nothing is. Of two the newer version's counts.
func (k *kind) find(name string) *item {
	for _, f := range k.feeds {
		if it := f.objects[name]; it != nil && it.skip == skipNot {
			return it
		}
	}
	return nil
}

// change makes what the server has what is in force, and gives the difference.
func (k *kind) change() (set []kube.Object, del []model.ObjectKey) {
	for name := range k.touched {
		old, now := k.applied[name], k.find(name)
		switch {
		case old == now:
		case now == nil:
			del = append(del, old.object.Ref)
			delete(k.applied, name)
		default:
			set = append(set, now.object)
			k.applied[name] = now
		}
	}
	clear(k.touched)
	return set, del
}

// versions are what the feed holds, for a server that is to say what differs. Versions of another server mean nothing to
// this one, and a counter may have begun anew when it restarted: such ones are left blank, and it sends the object again.
// It is nil if a request with them would have more than so many bytes: then the server is to say all.
func (f *feed) versions(address string, most int) map[string]string {
	out, size := make(map[string]string, len(f.objects)), 0
	for name, it := range f.objects {
		if out[name] = ""; f.origin == address && !counter(it.version) {
			out[name] = it.version
		}
		if size += len(name) + len(out[name]) + mapEntry; size > most {
			return nil
		}
	}
	return out
}

// mapEntry is what an entry of a map costs on the wire besides its texts, at most.
const mapEntry = 16

// counter reports whether a version is a number.
func counter(version string) bool {
	for _, c := range version {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
