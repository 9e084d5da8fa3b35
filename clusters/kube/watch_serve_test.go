package kube_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// ServeHTTP implements http.Handler.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "version" {
		if s.admit(w, r, "get", "version", true) {
			_ = json.NewEncoder(w).Encode(object{"major": "1"})
		}
		return
	}
	if parts[0] == "apis" && len(parts) < 4 {
		s.discovery(w, r, parts)
		return
	}
	gv, rest := "v1", parts[2:]
	if parts[0] == "apis" {
		gv, rest = parts[1]+"/"+parts[2], parts[3:]
	}
	ns := ""
	if len(rest) == 3 && rest[0] == "namespaces" {
		ns, rest = rest[1], rest[2:]
	}
	resource := rest[0]
	if parts[0] == "apis" {
		resource += "." + parts[1]
	}
	verb := "list"
	if q.Get("watch") != "" {
		verb = "watch"
	}
	s.mu.Lock()
	known := gv == "v1" || slices.Contains(s.served[gv], rest[0])
	s.mu.Unlock()
	if !s.admit(w, r, verb, resource, known) {
		return
	}
	sel := func(o object) bool {
		m := o["metadata"].(object)
		name, byName := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
		return (ns == "" || m["namespace"] == ns) && (!byName || m["name"] == name)
	}
	if verb == "watch" {
		s.watch(w, r, resource, gv, sel)
	} else {
		s.list(w, r, resource, gv, sel)
	}
}

// admit notes the request and answers it if it is not to be served.
func (s *apiServer) admit(w http.ResponseWriter, r *http.Request, verb, resource string, known bool) bool {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	s.requests = append(s.requests, request{verb, resource, token, r.URL.Query()})
	code := 0
	for _, what := range []string{"", resource, verb + " " + resource} {
		if s.failing[what] != 0 {
			code = s.failing[what]
		}
		if s.denied[what] > 0 {
			s.denied[what]--
			code = http.StatusForbidden
		}
	}
	if s.bad[token] {
		code = http.StatusUnauthorized
	}
	held, odd := s.held[verb+" "+resource], s.odd[verb+" "+resource]
	s.mu.Unlock()
	if held != nil {
		<-held
	}
	if code == 0 && !known {
		code = http.StatusNotFound
	}
	switch {
	case code != 0:
		s.refuse(w, code)
	case odd != nil:
		w.Header().Set("Content-Type", "application/json")
		odd(w, r)
	}
	return code == 0 && odd == nil
}

func (s *apiServer) refuse(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(statusOf(code))
}

func statusOf(code int) object {
	if code == http.StatusGatewayTimeout {
		return object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Timeout", "message": "Too large resource version",
			"details": object{"causes": []object{{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}}, "retryAfterSeconds": 1}}
	}
	reason := map[int]string{403: "Forbidden", 401: "Unauthorized", 404: "NotFound", 410: "Expired", 429: "TooManyRequests"}[code]
	return object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no: secret-token"}
}

func (s *apiServer) discovery(w http.ResponseWriter, r *http.Request, parts []string) {
	if !s.admit(w, r, "get", strings.Join(parts, "/"), true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if len(parts) == 3 {
		list := []object{}
		for _, res := range s.served[parts[1]+"/"+parts[2]] {
			list = append(list, object{"name": res, "verbs": []string{"get", "list", "watch"}})
		}
		_ = json.NewEncoder(w).Encode(object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": parts[1] + "/" + parts[2], "resources": list})
		return
	}
	groups := map[string][]object{}
	for gv, res := range s.served {
		if g, v, _ := strings.Cut(gv, "/"); len(res) > 0 {
			groups[g] = append(groups[g], object{"groupVersion": gv, "version": v})
		}
	}
	list := []object{}
	for g, vs := range groups {
		list = append(list, object{"name": g, "versions": vs})
	}
	_ = json.NewEncoder(w).Encode(object{"kind": "APIGroupList", "apiVersion": "v1", "groups": list})
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request, resource, gv string, sel func(object) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	keys := slices.Sorted(maps.Keys(s.objects[resource]))
	items, limit, next := []object{}, len(keys), ""
	if n, err := strconv.Atoi(q.Get("limit")); err == nil && n > 0 {
		limit = n
	}
	for _, k := range keys {
		switch {
		case k <= q.Get("continue") || !sel(s.objects[resource][k]):
		case len(items) == limit:
			next = items[limit-1]["continue"].(string)
		default:
			o := maps.Clone(s.objects[resource][k])
			o["apiVersion"], o["continue"] = gv, k
			items = append(items, o)
		}
		if next != "" {
			break
		}
	}
	for _, o := range items {
		delete(o, "continue")
	}
	kind := map[string]string{"gateways.gateway.networking.k8s.io": "Gateway", "serviceexports.multicluster.x-k8s.io": "ServiceExport"}[resource] + "List"
	for k, res := range resources {
		if res == resource {
			kind = k + "List"
		}
	}
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		kind, gv = "PartialObjectMetadataList", "meta.k8s.io/v1"
		for _, o := range items {
			o["kind"], o["apiVersion"] = "PartialObjectMetadata", gv
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object{"kind": kind, "apiVersion": gv,
		"metadata": object{"resourceVersion": strconv.Itoa(s.rv), "continue": next}, "items": items})
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource, gv string, sel func(object) bool) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	s.mu.Lock()
	gone, ahead := from < s.expired, s.ahead && from > s.rv
	if gone || ahead {
		s.mu.Unlock()
		s.refuse(w, map[bool]int{true: http.StatusGone, false: http.StatusGatewayTimeout}[gone])
		return
	}
	epoch := s.epoch
	s.watches++
	s.mu.Unlock()
	defer s.change(func() { s.watches-- })
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := func() { _ = http.NewResponseController(w).Flush() }
	flush()
	enc := json.NewEncoder(w)
	for {
		s.mu.Lock()
		if s.epoch != epoch { // history may have gone
			s.mu.Unlock()
			return
		}
		for _, e := range s.log {
			if e.rv > from && e.resource == resource && (e.kind == "BOOKMARK" || sel(e.object)) {
				o := maps.Clone(e.object)
				o["apiVersion"] = gv
				if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
					o["kind"], o["apiVersion"] = "PartialObjectMetadata", "meta.k8s.io/v1"
				}
				_ = enc.Encode(object{"type": e.kind, "object": o})
			}
		}
		from = max(from, s.rv)
		next := s.changed
		s.mu.Unlock()
		flush()
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
	}
}
