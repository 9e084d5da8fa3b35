package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const verdictOffline = "route explain --dir testdata/offline-route --proxy "

// TestRouteExplainVerdicts: what a client gets is told, also where requests are sent on and fail.
func TestRouteExplainVerdicts(t *testing.T) {
	t.Parallel()
	const files = "--metadata TLS_SERVER_CERT_CHAIN=/a --metadata TLS_SERVER_KEY=/b --metadata TLS_SERVER_ROOT_CERT=/c "
	for name, x := range map[string]struct {
		args, result string
		status       int
		says         []string
	}{
		"works":         {"web-1.shop GET http://web/delegated", "cluster", 0, []string{"it is sent on\n", "virtual-service/shop/root,virtual-service/shop/leaf"}},
		"in part":       {"web-1.shop GET http://web/part", "cluster", 0, []string{"it is sent on; 20% of requests are answered with 503"}},
		"no cluster":    {"web-1.shop GET http://web/gone", "unavailable", 503, []string{"it fails: it is answered with 503", "the proxy has no such cluster: requests to it fail with 503"}},
		"no endpoints":  {"web-1.shop GET http://empty/", "unavailable", 503, []string{"it fails: it is answered with 503", "no endpoints: requests to it fail with 503"}},
		"no target":     {"web-1.shop --tcp empty:3306", "closed", 0, []string{"it fails: the connection is closed", "no endpoints: connections to it are closed"}},
		"strict":        {"web-1.shop --inbound GET http://web/", "black hole", 0, []string{"it fails: the connection is blackholed", "PeerAuthentication shop/strict demands it", "no certificates", "TLS_SERVER_CERT_CHAIN", "peer-authentication/shop/strict"}},
		"cleartext":     {"web-1.shop " + files + "--inbound GET http://web/", "closed", 0, []string{"it fails: the connection is closed", "PeerAuthentication shop/strict demands it", "the client does not speak it"}},
		"other port":    {"web-1.shop --inbound GET http://web:99/", "black hole", 0, []string{"a PeerAuthentication demands it", "no certificates"}},
		"allowed":       {"web-1.shop --inbound --tcp web:3306", "cluster", 0, []string{"it is sent on\n"}},
		"wrong port":    {"web-1.shop GET http://web:8000/", "cluster", 0, []string{"web.shop.svc.cluster.local has no port 8000; its ports: 80, 3306"}},
		"own address":   {"web-1.shop --metadata INTERCEPTION_MODE=NONE GET http://web/delegated", "cluster", 0, []string{"connection to 127.0.0.1:80", "it is sent on\n"}},
		"own, no port":  {"web-1.shop --metadata INTERCEPTION_MODE=NONE GET http://web:81/", "no listener", 0, []string{"connection to 127.0.0.1:81", "nothing listens there", "web.shop.svc.cluster.local has no port 81"}},
		"idle server":   {"gateway-1.edge GET http://idle.example.com/", "no route", 404, []string{"Gateway edge/public, server 0 (port 80, hosts idle.example.com) has no routes: no VirtualService is bound to it"}},
		"refused":       {"gateway-1.edge GET https://shop.example.com/", "no listener", 0, []string{"Gateway edge/public, server 1 (port 443, hosts shop.example.com) is not served: ", "TLS_SERVER_"}},
		"no server":     {"gateway-1.edge GET http://shop.example.com:81/", "no listener", 0, []string{"no Gateway that selects the router has a server at port 81; its servers are at 80, 443"}},
		"no gateway":    {"gateway-2.edge --label a=b --router GET http://shop.example.com/", "no listener", 0, []string{"no Gateway selects the router"}},
		"meant address": {"web-1.shop --to 10.96.0.1:81 GET http://web:81/", "cluster", 0, []string{"it is sent on\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(verdictOffline + x.args)
			table, raw := command(t, args...), command(t, append(args, "-o", "json")...)
			var e routeExplanation
			if err := json.Unmarshal([]byte(raw.stdout), &e); err != nil {
				t.Fatal(err, raw.stderr)
			}
			if e.Result != x.result || e.Status != x.status || table.code != exitOK {
				t.Errorf("result %q, status %d, exit code %d", e.Result, e.Status, table.code)
			}
			for _, says := range x.says {
				if !strings.Contains(table.stdout, says) {
					t.Errorf("%q is not told in\n%s", says, table.stdout)
				}
			}
			if name == "in part" && !slices.ContainsFunc(e.Clusters, func(c routeCluster) bool { return c.Percent == 20 && c.Fails == "unavailable" }) {
				t.Errorf("%+v", e.Clusters)
			}
			if name == "meant address" && len(e.Notes) > 0 {
				t.Errorf("notes %q", e.Notes)
			}
		})
	}
}
