package client

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
)

// Options configure a Client. Zero values take the stated defaults.
type Options struct {
	Name model.ClusterID // required: the member that what it says is in
	// Addresses are those of servers with the same configuration, as host:port. Each connection is made with the first that
	// can be had.
	Addresses []string
	TLS       *TLS   // nil: plaintext
	TokenFile string // file of a bearer token, read for each stream; needs TLS
	Token     string // the same itself, in place of a file
	NoDelta   bool   // the state of the world is asked for first, not a delta stream

	Node     Node
	Hub      string // id of this hub, for the loop guard; "" has none
	Revision string // of Istio; "default" if empty

	DomainSuffix, TrustDomain, SystemNamespace string // as in kube.Converter
	ConfigCluster                              bool   // Name is the config cluster's

	Limits  Limits
	Timing  Timing
	Dial    func(ctx context.Context, address string) (net.Conn, error) // TCP if nil
	Jitter  func(time.Duration) time.Duration                           // takes up to a half off, at random, if nil
	Metrics *Metrics
	Log     *slog.Logger // discards if nil
}

// Node is how the client presents itself.
type Node struct {
	Pod, Namespace string // "isthmus", and the system namespace, if empty
	IP             string // 127.0.0.1 if empty
}

// Limits bound what a server may cost.
type Limits struct {
	MessageBytes int // of one response; 256 MiB
	Objects      int // of all kinds; 200 000
	RequestBytes int // of a request that says what is held; 3 MiB, as most servers take no more than 4
}

// Timing is how long what may take.
type Timing struct {
	Connect  time.Duration // until there is a stream; 10s
	Answer   time.Duration // how long kinds without an answer are waited for once no other kind is answered any more; 30s
	Retry    time.Duration // before another try; 500ms, and half as long again for each that fails
	RetryMax time.Duration // 60s
}

func (o Options) withDefaults() Options {
	o.SystemNamespace, o.DomainSuffix = cmp.Or(o.SystemNamespace, "istio-system"), cmp.Or(o.DomainSuffix, "cluster.local")
	o.Node = Node{cmp.Or(o.Node.Pod, "isthmus"), cmp.Or(o.Node.Namespace, o.SystemNamespace), cmp.Or(o.Node.IP, "127.0.0.1")}
	o.Revision = cmp.Or(o.Revision, "default")
	o.Limits = Limits{cmp.Or(o.Limits.MessageBytes, 256<<20), cmp.Or(o.Limits.Objects, 200_000), cmp.Or(o.Limits.RequestBytes, 3<<20)}
	t := &o.Timing
	t.Connect, t.Answer = cmp.Or(t.Connect, 10*time.Second), cmp.Or(t.Answer, 30*time.Second)
	t.Retry, t.RetryMax = cmp.Or(t.Retry, 500*time.Millisecond), cmp.Or(t.RetryMax, time.Minute)
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", address)
		}
	}
	if o.Jitter == nil {
		o.Jitter = func(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// backoff is how long to wait before the next try.
type backoff struct {
	least, most, next time.Duration
}

func (b *backoff) reset() { b.next = 0 }

// wait gives the time for this failure; the next is half as long again.
func (b *backoff) wait() time.Duration {
	d := max(b.next, b.least)
	b.next = min(d+d/2, b.most)
	return min(d, b.most)
}
