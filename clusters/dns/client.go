package dns

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// timeout is how long one server has to answer one question.
const timeout = 5 * time.Second

const (
	maxFile  = 1 << 20 // bytes of a hosts file that are read
	maxChain = 16      // aliases that are followed
	udpSize  = 1232    // bytes that fit into one packet everywhere
)

// Files name the machine's configuration of names.
type Files struct {
	Resolv string // default /etc/resolv.conf; its servers are asked, its search domains are not used
	Hosts  string // default /etc/hosts; comes before servers
}

// Client is a Resolver that asks DNS servers, each in turn until one answers. The files are read anew for
// each question.
type Client struct {
	files Files
	named []netip.AddrPort // servers to ask in place of those of files.Resolv
	port  string           // of files.Resolv's servers; "" is that of DNS
	wait  time.Duration    // for each answer
}

// NewClient gives a client of the servers, or, if there are none, of the machine's.
func NewClient(f Files, servers ...netip.AddrPort) *Client {
	return &Client{
		files: Files{Resolv: cmp.Or(f.Resolv, "/etc/resolv.conf"), Hosts: cmp.Or(f.Hosts, "/etc/hosts")},
		named: servers, wait: timeout,
	}
}

// Lookup implements Resolver.
func (c *Client) Lookup(ctx context.Context, name string, f Family) (Answer, error) {
	if addrs := c.hosts(name); len(addrs) > 0 {
		return Answer{Addrs: slices.DeleteFunc(addrs, func(a netip.Addr) bool { return f.foreign(a) }), TTL: MinTTL}, nil
	}
	servers, err := c.servers()
	if err != nil {
		return Answer{}, err
	}
	var faults []error
	for _, s := range servers {
		a, err := c.ask(ctx, s.address, question(name, f))
		if err == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return Answer{}, ctx.Err()
		}
		faults = append(faults, fmt.Errorf("server %s: %w", s.name, err))
	}
	return Answer{}, join(faults)
}

// server is a DNS server and what it is called.
type server struct{ name, address string }

func (c *Client) servers() (out []server, err error) {
	for _, s := range c.named {
		out = append(out, server{s.String(), s.String()})
	}
	if len(out) > 0 {
		return out, nil
	}
	config, err := dns.ClientConfigFromFile(c.files.Resolv)
	if err != nil {
		return nil, fmt.Errorf("read DNS servers: %w", err)
	}
	if len(config.Servers) == 0 {
		return nil, errors.New("no DNS server is configured")
	}
	for _, s := range config.Servers {
		out = append(out, server{s, net.JoinHostPort(s, cmp.Or(c.port, config.Port))})
	}
	return out, nil
}

// foreign reports whether an address is of the other family.
func (f Family) foreign(a netip.Addr) bool { return a.Is4() != (f == IPv4) }

// join puts errors into one line.
func join(faults []error) error {
	var text []string
	for _, f := range faults {
		text = append(text, f.Error())
	}
	return errors.New(strings.Join(text, ", "))
}

func question(name string, f Family) *dns.Msg {
	kind := dns.TypeA
	if f == IPv6 {
		kind = dns.TypeAAAA
	}
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), kind)
	m.SetEdns0(udpSize, false)
	return m
}

// ask puts a question to one server, over TCP if the answer does not fit into a packet.
func (c *Client) ask(ctx context.Context, server string, q *dns.Msg) (Answer, error) {
	reply, err := c.exchange(ctx, "udp", server, q)
	if err == nil && reply.Truncated {
		reply, err = c.exchange(ctx, "tcp", server, q)
	}
	if err != nil {
		return Answer{}, err
	}
	return read(q.Question[0], reply)
}

func (c *Client) exchange(ctx context.Context, network, server string, q *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	client := dns.Client{Net: network, Timeout: c.wait, UDPSize: udpSize}
	conn, err := client.DialContext(ctx, server)
	if err != nil {
		return nil, plain(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })() // or the end of ctx would not be seen while waiting
	reply, _, err := client.ExchangeWithConnContext(ctx, q, conn)
	if err != nil {
		return nil, plain(err)
	}
	return reply, nil
}

// plain gives an error that is the same each time: without our port, which differs.
func plain(err error) error {
	var fault *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, net.ErrClosed) || errors.As(err, &fault) && fault.Timeout():
		return errors.New("no answer in time")
	case errors.As(err, &fault):
		return fault.Err
	}
	return err
}

// read takes the addresses of a reply. That a name has none is an answer if the server says so itself, and not
// only where else to ask.
func read(q dns.Question, reply *dns.Msg) (Answer, error) {
	if reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
		return Answer{}, errors.New(cmp.Or(dns.RcodeToString[reply.Rcode], fmt.Sprint("code ", reply.Rcode)))
	}
	a := Answer{TTL: MaxTTL}
	lower := func(seconds uint32) { a.TTL = min(a.TTL, time.Duration(seconds)*time.Second) }
	owner := strings.ToLower(q.Name)
	for range maxChain {
		next := ""
		for _, rr := range reply.Answer {
			if strings.ToLower(rr.Header().Name) != owner {
				continue
			}
			switch rr := rr.(type) {
			case *dns.CNAME:
				next = strings.ToLower(rr.Target)
			case *dns.A:
				a.add(q.Qtype == dns.TypeA, rr.A)
			case *dns.AAAA:
				a.add(q.Qtype == dns.TypeAAAA, rr.AAAA)
			default:
				continue
			}
			lower(rr.Header().Ttl)
		}
		if next == "" || next == owner {
			break
		}
		owner = next
	}
	if len(a.Addrs) > 0 {
		return a, nil
	}
	err := a.none(reply, lower)
	return a, err
}

func (a *Answer) add(wanted bool, ip net.IP) {
	if addr, ok := netip.AddrFromSlice(ip); ok && wanted {
		a.Addrs = append(a.Addrs, addr.Unmap())
	}
}

// none says how long a name has no address (RFC 2308), or that the server only refers to others.
func (a *Answer) none(reply *dns.Msg, lower func(uint32)) error {
	refers := false
	for _, rr := range reply.Ns {
		switch rr := rr.(type) {
		case *dns.SOA:
			lower(min(rr.Hdr.Ttl, rr.Minttl))
			return nil
		case *dns.NS:
			refers = true
		}
	}
	if refers && reply.Rcode == dns.RcodeSuccess {
		return errors.New("it refers to other servers")
	}
	a.TTL = MinTTL
	return nil
}

// hosts gives the addresses of a name in the hosts file.
func (c *Client) hosts(name string) (out []netip.Addr) {
	f, err := os.Open(c.files.Hosts)
	if err != nil {
		return nil
	}
	defer f.Close()
	return parseHosts(f, name)
}

// parseHosts reads lines of an address followed by names (hosts(5)).
func parseHosts(r io.Reader, name string) (out []netip.Addr) {
	lines := bufio.NewScanner(io.LimitReader(r, maxFile))
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) < 2 || !slices.ContainsFunc(fields[1:], func(h string) bool { return strings.EqualFold(strings.TrimSuffix(h, "."), name) }) {
			continue
		}
		if a, err := netip.ParseAddr(fields[0]); err == nil && a.Zone() == "" {
			out = append(out, a.Unmap())
		}
	}
	return out
}
