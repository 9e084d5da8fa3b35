package gen

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

// NameInfo is what a name stands for in the table of names (istio.networking.nds.v1.NameTable.NameInfo).
type NameInfo struct {
	IPs       []string `json:"ips"`
	Registry  string   `json:"registry"`
	Shortname string   `json:"shortname,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
}

// ReadNameTable gives the table of names that proxies of a class would get, by host; nil for a router, which has none.
func ReadNameTable(v *pushcontext.NamesView, c Class) map[string]NameInfo {
	if c.Type == Router {
		return nil
	}
	out := map[string]NameInfo{}
	eachField((&nameBook{class: c}).encode(v), func(_ protowire.Number, entry []byte) {
		var host string
		var info NameInfo
		eachField(entry, func(n protowire.Number, b []byte) {
			if n == entryKey {
				host = string(b)
				return
			}
			eachField(b, info.read)
		})
		out[host] = info
	})
	return out
}

func (i *NameInfo) read(n protowire.Number, b []byte) {
	switch n {
	case infoIPs:
		i.IPs = append(i.IPs, string(b))
	case infoRegistry:
		i.Registry = string(b)
	case infoShortname:
		i.Shortname = string(b)
	case infoNamespace:
		i.Namespace = string(b)
	}
}

// eachField reads a message of our own whose fields all have a length.
func eachField(b []byte, f func(protowire.Number, []byte)) {
	for len(b) > 0 {
		num, _, n := protowire.ConsumeTag(b)
		v, m := protowire.ConsumeBytes(b[n:])
		f(num, v)
		b = b[n+m:]
	}
}
