package script

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"rsc.io/script"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/pushcontext"
)

func readFile(s *script.State, name string) ([]byte, error) { return os.ReadFile(s.Path(name)) }

// action is what a verb does; what it returns is the script's stdout.
type action func(s *script.State, args []string) (string, error)

func verb(args, summary string, least int, do action) script.Cmd {
	return script.Command(script.CmdUsage{Args: args, Summary: summary}, func(s *script.State, given ...string) (script.WaitFunc, error) {
		if len(given) < least {
			return nil, script.ErrUsage
		}
		out, err := do(s, given)
		return func(*script.State) (string, string, error) { return out, "", err }, nil
	})
}

// verbs are the commands of a scenario.
func verbs(w *world) map[string]script.Cmd {
	all := script.DefaultCmds()
	maps.Copy(all, memberVerbs(w))
	maps.Copy(all, timeVerbs(w))
	maps.Copy(all, viewVerbs(w))
	maps.Copy(all, proxyVerbs(w))
	return all
}

// memberVerbs change what members report. A member is "cluster" or "provider/cluster"; an older
// instance of one is "cluster@n".
func memberVerbs(w *world) map[string]script.Cmd {
	quiet := func(err error) (string, error) { return "", err }
	return map[string]script.Cmd{
		"attach": verb("member [file...]", "attach a registry; without files it can't list its objects yet", 1,
			func(s *script.State, a []string) (string, error) { return quiet(w.attach(s, a[0], a[1:])) }),
		"swap": verb("member [file...]", "attach a replacement: new credentials, new settings", 1,
			func(s *script.State, a []string) (string, error) { return quiet(w.attach(s, a[0], a[1:])) }),
		"detach": verb("member", "remove a member", 1, func(s *script.State, a []string) (string, error) {
			w.controller.Detach(shardKey(a[0]))
			w.settle()
			return "", nil
		}),
		"replace": verb("member [file...]", "report everything anew", 1, w.onMember(func(s *script.State, r *registry, files []string) error {
			objects, err := read(s, files)
			if err == nil {
				r.replace(objects)
			}
			return err
		})),
		"put": verb("member file...", "add or change objects", 2, w.onMember(func(s *script.State, r *registry, files []string) error {
			objects, err := read(s, files)
			if err == nil {
				r.apply(objects, nil)
			}
			return err
		})),
		"delete": verb("member Kind/namespace/name...", "delete objects", 2, w.onMember(func(_ *script.State, r *registry, names []string) error {
			var keys []model.ObjectKey
			for _, n := range names {
				p := strings.Split(n, "/")
				if len(p) != 3 {
					return fmt.Errorf("%q is not Kind/namespace/name", n)
				}
				keys = append(keys, model.ObjectKey{Kind: p[0], Namespace: p[1], Name: p[2]})
			}
			r.apply(nil, keys)
			return nil
		})),
		"cut": verb("member reason", "lose contact with the source: changes are not reported until restore", 2,
			w.onMember(func(_ *script.State, r *registry, why []string) error {
				r.cut(strings.Join(why, " "))
				return nil
			})),
		"restore": verb("member", "have contact again, and report everything anew", 1, w.onMember(func(_ *script.State, r *registry, _ []string) error {
			r.Hang(false)
			return nil
		})),
		"fail": verb("member reason", "end the registry's run with an error", 2, w.onMember(func(_ *script.State, r *registry, why []string) error {
			r.Fail(errors.New(strings.Join(why, " ")))
			return nil
		})),
		"running": verb("member", "print which instances of a member run", 1, func(_ *script.State, a []string) (string, error) {
			var lines []string
			for i, r := range w.instances[shardKey(a[0])] {
				lines = append(lines, fmt.Sprintf("%s@%d %s", a[0], i+1, r.running()))
			}
			return text(lines), nil
		}),
		"problems": verb("member", "print what conversion refuses", 1, func(_ *script.State, a []string) (string, error) {
			r, err := w.instance(a[0])
			if err != nil {
				return "", err
			}
			var lines []string
			for ref, list := range r.store.Problems() {
				for _, p := range list {
					lines = append(lines, ref.String()+": "+p)
				}
			}
			return text(lines), nil
		}),
		"dns": verb("name TTL|fault [address...]", "say what the hub's resolver answers; others fail", 2, func(_ *script.State, a []string) (string, error) {
			return quiet(w.resolver.answer(a[0], a[1:]))
		}),
		"mcs": verb("", "turn the Multi-Cluster Services API on for members attached from now on", 0, func(*script.State, []string) (string, error) {
			w.mcs = true
			return "", nil
		}),
		"mesh": verb("MeshConfig|MeshNetworks file", "set mesh-wide settings", 2,
			func(s *script.State, a []string) (string, error) { return quiet(w.setMesh(s, a[0], a[1])) }),
	}
}

func (w *world) onMember(do func(*script.State, *registry, []string) error) action {
	return func(s *script.State, a []string) (string, error) {
		r, err := w.instance(a[0])
		if err == nil {
			err = do(s, r, a[1:])
		}
		w.settle()
		return "", err
	}
}

// timeVerbs let things happen.
func timeVerbs(w *world) map[string]script.Cmd {
	return map[string]script.Cmd{
		"start": verb("", "let the hub run; it waits for the members attached so far", 0, func(*script.State, []string) (string, error) {
			w.start()
			return "", nil
		}),
		"advance": verb("duration", "let time pass", 1, func(_ *script.State, a []string) (string, error) {
			d, err := time.ParseDuration(a[0])
			if err == nil {
				w.advance(d)
			}
			return "", err
		}),
		"sync": verb("", "let time pass until every change has been committed and pushed, and check what the proxies hold", 0, func(*script.State, []string) (string, error) {
			return "", w.quiet()
		}),
		"ready": verb("", "succeed if the hub serves", 0, func(*script.State, []string) (string, error) {
			if !w.controller.Ready() {
				return "", errors.New("not ready")
			}
			return "", nil
		}),
		"log": verb("", "print what the hub has logged", 0, func(*script.State, []string) (string, error) { return w.log.String(), nil }),
		"deltas": verb("", "print what was published since the last time", 0, func(*script.State, []string) (string, error) {
			var lines []string
			for _, d := range w.log.take() {
				lines = append(lines, deltaLine(d))
			}
			return strings.Join(lines, ""), nil
		}),
	}
}

func deltaLine(d *pushcontext.Delta) string {
	parts := []string{"delta"}
	add := func(name string, list []string) {
		if len(list) > 0 {
			parts = append(parts, name+"="+strings.Join(list, ","))
		}
	}
	add("endpoints", d.Endpoints)
	add("shape", d.Shape)
	if d.Mesh {
		parts = append(parts, "mesh")
	}
	return strings.Join(parts, " ") + "\n"
}

// text puts lines in order.
func text(lines []string) string {
	slices.Sort(lines)
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(strings.TrimRight(l, " \n") + "\n")
	}
	return b.String()
}

// proxyVerbs connect proxies and look at what they hold. Types are cds, eds, lds and rds.
func proxyVerbs(w *world) map[string]script.Cmd {
	return map[string]script.Cmd{
		"proxy": verb("pod.namespace sotw|delta [cluster=c1] [ip=10.250.0.1] [network=n] [locality=r/z/s] [type=sidecar|router] [META=value]... [LABELS.key=value]...",
			"connect a proxy", 2, func(_ *script.State, a []string) (string, error) { return "", w.connect(a[0], a[1], a[2:]) }),
		"disconnect": verb("proxy", "break its stream off", 1, w.onProxy(func(p *proxy, _ []string) (string, error) {
			p.disconnect()
			return "", nil
		})),
		"reconnect": verb("proxy", "open a stream again, with what it holds", 1,
			func(_ *script.State, a []string) (string, error) { return "", w.connect(a[0], "", nil) }),
		"hold": verb("proxy type", "delay its ACKs of a type", 2, w.onProxy(func(p *proxy, a []string) (string, error) {
			p.Hold(typeURL(a[0]))
			return "", nil
		})),
		"ack": verb("proxy", "send the delayed ACKs", 1, w.onProxy(func(p *proxy, _ []string) (string, error) {
			p.Release()
			return "", nil
		})),
		"nack": verb("proxy type regexp", "from now on refuse resources with such names", 3, w.onProxy(func(p *proxy, a []string) (string, error) {
			re, err := regexp.Compile(a[1])
			p.refuses(typeURL(a[0]), re)
			return "", err
		})),
		"accept": verb("proxy", "from now on refuse nothing", 1, w.onProxy(func(p *proxy, _ []string) (string, error) {
			p.accepts()
			return "", nil
		})),
		"holds": verb("proxy type [text]", "print what it holds, of resources with the text in their names", 2,
			w.onProxy(func(p *proxy, a []string) (string, error) { return p.holds(a[0], strings.Join(a[1:], " ")) })),
		"routes": verb("proxy [text]", "print where the routes lead of virtual hosts with the text in their names", 1,
			w.onProxy(func(p *proxy, a []string) (string, error) { return p.routes(strings.Join(a, " ")) })),
		"streams": verb("proxy [text]", "print where connections are forwarded to by listeners with the text in their names", 1,
			w.onProxy(func(p *proxy, a []string) (string, error) { return p.streams(strings.Join(a, " ")) })),
		"trace": verb("proxy", "print the responses that it received since the last time, in order", 1,
			w.onProxy(func(p *proxy, _ []string) (string, error) { return p.trace(), nil })),
		"warming": verb("proxy", "print the clusters that wait for endpoints", 1, w.onProxy(func(p *proxy, _ []string) (string, error) {
			return text(p.Warming()), nil
		})),
		"count": verb("", "print, since the last time, how many resources were built, sent to each proxy and refused", 0,
			func(*script.State, []string) (string, error) { return w.count() }),
	}
}

func (w *world) onProxy(do func(*proxy, []string) (string, error)) action {
	return func(_ *script.State, a []string) (string, error) {
		p := w.proxies[a[0]]
		if p == nil {
			return "", fmt.Errorf("no proxy %q", a[0])
		}
		out, err := do(p, a[1:])
		w.settle()
		return out, err
	}
}

// count gives "built TYPE=N …", "PROXY TYPE=N …" and "refused TYPE=N …", leaving out what is 0.
func (w *world) count() (string, error) {
	families, err := w.metrics.Gather()
	if err != nil {
		return "", err
	}
	now := map[string]float64{}
	rows := map[string]string{"isthmus_xds_builds_total": "built", "pilot_total_xds_rejects": "refused"}
	for _, f := range families {
		for _, m := range f.Metric {
			if row := rows[f.GetName()]; row != "" {
				now[row+" "+m.Label[0].GetValue()] = m.Counter.GetValue()
			}
		}
	}
	for name, p := range w.proxies {
		for _, t := range types {
			now[name+" "+t] = float64(p.Received(typeURL(t)))
		}
	}
	lines := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if n := now[key] - w.counted[key]; n > 0 {
			row, typ, _ := strings.Cut(key, " ")
			lines[row] += fmt.Sprintf(" %s=%g", typ, n)
		}
	}
	w.counted = now
	var out []string
	for row, cells := range lines {
		out = append(out, row+cells)
	}
	return text(out), nil
}
