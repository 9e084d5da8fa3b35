package main

// figure is one line of the table.
type figure struct {
	key    string
	label  string
	unit   string
	digits int
	small  *budget
	big    *budget
}

// budget is what a figure should be at most, or at least.
type budget struct {
	limit   float64
	atLeast bool
	only    string // "" or the one protocol that it is for
	// plusFloor adds this figure of the floor to the limit: what no server can do without.
	plusFloor string
}

func most(limit float64) *budget { return &budget{limit: limit} }

func (b budget) delta() *budget {
	b.only = "delta"
	return &b
}

// figures are the lines, in order. A line that nothing measured is left out.
func figures() []figure {
	return []figure{
		{"start_s", "start: load the mesh, first snapshot", "s", 2, nil, nil},
		{"start_heap_mib", "heap before the first proxy", "MiB", 0, nil, nil},
		{"connect_all_s", "connect: all ready", "s", 2, nil, nil},
		{"connect_p50_ms", "connect: a proxy ready, p50", "ms", 0, nil, nil},
		{"connect_p99_ms", "connect: a proxy ready, p99", "ms", 0, most(1000), nil},
		{"connect_cpu_s", "connect: server CPU", "s", 2, most(.5), nil},
		{"connect_mib", "connect: sent", "MiB", 0, nil, nil},
		{"connect_refused", "connect: streams refused", "", 0, most(0), most(0)},
		{"connect_rss_mib", "RSS after connect", "MiB", 0, most(180), nil},
		{"connect_builds", "resources encoded for it", "", 0, nil, nil},
		{"kept_mib", "encoded resources kept", "MiB", 0, nil, nil},
		{"warm_p50_ms", "one more proxy of a warm class: ready, p50", "ms", 1, nil, nil},
		{"warm_cpu_ms", "one more proxy of a warm class: server CPU", "ms", 1, nil, nil},
		{"warm_builds_cds", "one more proxy: clusters encoded", "", 1, nil, nil},
		{"warm_builds_eds", "one more proxy: assignments encoded", "", 1, most(0), most(0)},
		{"warm_builds_lds", "one more proxy: listeners encoded", "", 1, nil, nil},
		{"warm_builds_rds", "one more proxy: route tables encoded", "", 1, most(0), most(0)},
		{"idle_cpu_percent", "idle: server CPU, of one core", "%", 1, most(1), most(1)},
		{"change_p50_ms", "endpoint change to a proxy, p50", "ms", 1, most(10), nil},
		{"change_p99_ms", "endpoint change to a proxy, p99", "ms", 1, nil, nil},
		{"change_last_p50_ms", "endpoint change to the last proxy, p50", "ms", 1, nil, &budget{limit: 20, plusFloor: "change_last_p50_ms"}},
		{"change_last_p99_ms", "endpoint change to the last proxy, p99", "ms", 1, nil, nil},
		{"change_cpu_ms", "endpoint change: server CPU", "ms", 1, most(12), nil},
		{"change_mib", "endpoint change: sent", "MiB", 2, nil, nil},
		{"change_sent_mib", "endpoint change: received (ACKs)", "MiB", 2, nil, nil},
		{"change_builds", "endpoint change: resources encoded", "", 1, nil, nil},
		{"churn_p99_ms", "under churn: change to a proxy, p99", "ms", 1, nil, nil},
		{"churn_last_p50_ms", "under churn: change to the last proxy, p50", "ms", 1, nil, nil},
		{"churn_last_p99_ms", "under churn: change to the last proxy, p99", "ms", 1, nil, most(300)},
		{"churn_cpu_ms", "under churn: server CPU per change", "ms", 1, nil, nil},
		{"churn_busy", "under churn: cores that the server uses", "", 2, nil, nil},
		{"create_p50_ms", "new service to a proxy (cluster), p50", "ms", 1, most(50), nil},
		{"create_last_p50_ms", "new service to the last proxy (cluster), p50", "ms", 1, nil, nil},
		{"create_route_last_p50_ms", "new service to the last proxy (route), p50", "ms", 1, nil, nil},
		{"create_cpu_ms", "new service: server CPU", "ms", 1, most(30).delta(), nil},
		{"create_mib", "new service: sent", "MiB", 1, most(1).delta(), nil},
		{"create_builds", "new service: resources encoded", "", 0, nil, nil},
		{"burst_last_p50_ms", "burst of 300: last change at every proxy", "ms", 0, most(250), nil},
		{"burst_cpu_ms", "burst of 300: server CPU", "ms", 0, most(300), nil},
		{"burst_mib", "burst of 300: sent", "MiB", 1, nil, nil},
		{"burst_messages", "burst of 300: responses", "", 0, nil, nil},
		{"heap_mib", "heap in the end", "MiB", 0, nil, most(1024)},
		{"rss_mib", "RSS in the end", "MiB", 0, nil, nil},
		{"goroutines", "goroutines in the end", "", 0, nil, nil},
	}
}

// writerFigures are those of the controller alone.
func writerFigures() []figure {
	fast := &budget{limit: 50000, atLeast: true}
	return []figure{
		{"writer_applied_s", "events applied, per second of CPU", "/s", 0, fast, fast},
		{"writer_published_s", "events applied, merged and published, per second of CPU", "/s", 0, nil, nil},
		{"commit_100_ms", "commits of 100 changed services", "ms", 2, most(5), most(5)},
	}
}

func (f figure) budget(profile string) *budget {
	switch profile {
	case "small":
		return f.small
	case "big":
		return f.big
	}
	return nil
}

// limit gives the bound for a protocol, and false if there is none.
func (b *budget) bound(proto string, floor map[string]float64) (float64, bool) {
	if b == nil || b.only != "" && b.only != proto {
		return 0, false
	}
	if b.plusFloor == "" {
		return b.limit, true
	}
	low, ok := floor[b.plusFloor]
	return b.limit + low, ok
}

func (b *budget) holds(v, bound float64) bool {
	if b.atLeast {
		return v >= bound
	}
	return v <= bound
}
