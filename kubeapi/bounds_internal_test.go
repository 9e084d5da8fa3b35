package kubeapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

var entriesAt = Place{Group: "networking.istio.io", Version: "v1", Resource: "workloadentries"}

// answering gives a client of a server that answers as told.
func answering(t *testing.T, with http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(with)
	client, err := Connect(Options{Config: &rest.Config{Host: srv.URL}, QPS: 1e6, Burst: 1e6, Timing: Timing{Retry: time.Millisecond, RetryMax: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		srv.CloseClientConnections()
		srv.Close()
	})
	return client
}

// entriesFeed is a feed of WorkloadEntries and the store that it fills, whose requests end as told.
func entriesFeed(client *Client, limit int, outcome func(string, error)) (*Feed, *shelf) {
	s := &shelf{}
	client.opts.MaxObjects = limit
	f := client.Feed("WorkloadEntry", entriesAt, Required, func() runtime.Object { return NewRawList("networking.istio.io/v1", "WorkloadEntry") }, s)
	f.outcome = outcome
	return f, s
}

func listText(next string, items ...string) string {
	return fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","items":[%s],"kind":"WorkloadEntryList","metadata":{"resourceVersion":"7","continue":%q}}`,
		strings.Join(items, ","), next)
}

func entryText(name string) string {
	return fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"WorkloadEntry","metadata":{"name":%q,"namespace":"shop"},"spec":{"address":"10.0.0.1"}}`, name)
}

// A page beyond the bounds is given up while it is read, whatever makes it large.
func TestBoundsOfAPage(t *testing.T) {
	t.Parallel()
	pods := func(n int) string {
		body, err := (&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: make([]corev1.Pod, n)}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return string(envelope("PodList", len(body))) + string(body)
	}
	containers := func(n int) string {
		item := append([]byte{0x12}, binary.AppendUvarint(nil, uint64(2*n))...) // a pod's spec
		item = append(item, bytes.Repeat([]byte{0x12, 0}, n)...)
		list := append([]byte{0x0a, 3, 0x12, 1, '7', 0x12}, binary.AppendUvarint(nil, uint64(len(item)))...)
		list = append(list, item...)
		return string(envelope("PodList", len(list))) + string(list)
	}
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"items":           {listText("", strings.Repeat("{},", 100)+"{}"), false},
		"as many as may":  {listText("", strings.Repeat("{},", 99)+"{}"), true},
		"parts":           {listText("", `{"a":[`+strings.Repeat("[],", 999)+`[]]}`), false},
		"bytes":           {listText("", `{"a":"`+strings.Repeat("x", 20_000)+`"}`), false},
		"metadata":        {`{"metadata":{"a":"` + strings.Repeat("x", 20_000) + `"}}`, false},
		"fields":          {`{` + strings.Repeat(`"a":1,`, 5) + `"kind":"WorkloadEntryList"}`, false},
		"pods":            {pods(101), false},
		"pods that may":   {pods(15), true},
		"containers":      {containers(600), false},
		"some containers": {containers(30), true},
		"pods, too large": {pods(1) + strings.Repeat("\x1a\x00", 10_000), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", runtime.ContentTypeJSON)
				if strings.HasPrefix(c.text, "k8s") {
					w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
				}
				_, _ = w.Write([]byte(c.text))
			})
			client.most = bounds{bytes: 16_000, items: 100, parts: 500}
			var err error
			if strings.HasPrefix(c.text, "k8s") {
				err = client.list(t.Context(), client.request(client.core, podsAt, metav1.ListOptions{}), &corev1.PodList{})
			} else {
				err = client.list(t.Context(), client.request(client.custom, entriesAt, metav1.ListOptions{}), NewRawList("networking.istio.io/v1", "WorkloadEntry"))
			}
			if c.ok && err != nil || !c.ok && !errors.Is(err, ErrUnreadable) {
				t.Errorf("error %v", err)
			}
			if !c.ok && name != "fields" && !errors.Is(err, errTooMuch) {
				t.Errorf("%v is not for its size", err)
			}
		})
	}
}

// Of no item more is read than those that may be.
func TestBoundsStopWhatDecodes(t *testing.T) {
	t.Parallel()
	h, n := head{most: bounds{items: 100, parts: 1000}}, 0
	err := h.json(t.Context(), []byte(listText("", strings.Repeat("{},", 100_000)+"{}")), func([]byte) error { n++; return nil })
	if !errors.Is(err, errTooMuch) || n > 101 {
		t.Errorf("%d items, error %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n, h = 0, head{most: bounds{items: 1 << 20, parts: 1 << 20}}
	err = h.json(ctx, []byte(listText("", strings.Repeat("{},", 100_000)+"{}")), func([]byte) error {
		if n++; n == 5 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n > 6 {
		t.Errorf("%d items after the end, error %v", n, err)
	}
}

// Objects so large that a page of them is too much are read in smaller pages.
func TestPagesBecomeSmaller(t *testing.T) {
	t.Parallel()
	const all = 300
	client := answering(t, func(w http.ResponseWriter, r *http.Request) {
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		next, items := "", []string{}
		for i := from; i < min(all, from+limit); i++ {
			items = append(items, entryText(fmt.Sprint("e-", i)))
		}
		if from+limit < all {
			next = strconv.Itoa(from + limit)
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_, _ = w.Write([]byte(listText(next, items...)))
	})
	client.most.bytes = 2000
	fails := 0
	f, kept := entriesFeed(client, 1000, func(_ string, err error) {
		if err != nil {
			fails++
		}
	})
	for range 5 {
		if rv, err := f.list(t.Context()); err == nil {
			if rv != "7" || len(kept.objects) != all || fails != 2 {
				t.Errorf("revision %s, %d objects, %d failures", rv, len(kept.objects), fails)
			}
			return
		}
	}
	t.Error("the pages stay too large")
}

// A large answer waits for another to be done with, and no longer than its context.
func TestLargeAnswersComeOneByOne(t *testing.T) {
	t.Parallel()
	text := []byte(listText("", `{"a":"`+strings.Repeat("x", largeAnswer)+`"}`))
	var asked atomic.Int32
	client := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_, _ = w.Write(text)
	})
	list := func(ctx context.Context) error {
		return client.list(ctx, client.request(client.custom, entriesAt, metav1.ListOptions{}), NewRawList("networking.istio.io/v1", "WorkloadEntry"))
	}
	client.large <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- list(ctx) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	go func() { ended <- list(t.Context()) }()
	select {
	case err := <-ended:
		t.Errorf("it has not waited; error %v", err)
	default:
	}
	<-client.large
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(client.large) != 0 {
		t.Error("the place is not given back")
	}
	b := &bounded{ReadCloser: http.NoBody, ctx: ctx, left: 1, large: client.large}
	client.large <- struct{}{}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v of a body that may not be read", err)
	}
}

// Whatever answers, it is a list of the kind or an error, within the bounds.
func FuzzAnswerHead(f *testing.F) {
	f.Add([]byte(listText("x", entryText("a"), "{}")))
	f.Add([]byte(`{"kind":"PodList","kind":1,"items":{}}`))
	f.Add(append(envelope("PodList", 4), 0x12, 0, 0x12, 0))
	f.Fuzz(func(t *testing.T, body []byte) {
		h, n := head{most: bounds{items: 10, parts: 20}}, 0
		if bytes.HasPrefix(body, protobufMagic) {
			if h.protobuf(body[len(protobufMagic):]) == nil && h.items > 10 {
				t.Errorf("%d items", h.items)
			}
			return
		}
		err := h.json(t.Context(), body, func([]byte) error { n++; return nil })
		if err == nil && (n != h.items || n > 10) {
			t.Errorf("%d items, %d told", n, h.items)
		}
	})
}

// Lists whose pages never end, in one way or another, are failures with pauses between them.
func TestListsWithoutEnd(t *testing.T) {
	t.Parallel()
	expired := func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusGone)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}`))
	}
	for name, c := range map[string]struct {
		with func(w http.ResponseWriter, r *http.Request, n int)
		most int // requests per failure
	}{
		"pages that are too old": {func(w http.ResponseWriter, r *http.Request, n int) {
			if r.URL.Query().Get("continue") != "" {
				expired(w)
				return
			}
			_, _ = w.Write([]byte(listText("more", entryText("a"))))
		}, 4},
		"the same page": {func(w http.ResponseWriter, r *http.Request, n int) {
			_, _ = w.Write([]byte(listText(fmt.Sprint("more-", n), entryText("a"))))
		}, 11},
		"empty pages": {func(w http.ResponseWriter, r *http.Request, n int) {
			_, _ = w.Write([]byte(listText(fmt.Sprint("more-", n))))
		}, 11},
		"new objects": {func(w http.ResponseWriter, r *http.Request, n int) {
			_, _ = w.Write([]byte(listText(fmt.Sprint("more-", n), entryText(fmt.Sprint("e-", n)))))
		}, 11},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			client := answering(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", runtime.ContentTypeJSON)
				c.with(w, r, int(asked.Add(1)))
			})
			fails, pauses := 0, 0
			f, kept := entriesFeed(client, 20, func(_ string, err error) {
				if err != nil {
					fails++
				}
			})
			f.pause = func(context.Context, time.Duration) bool { pauses++; return pauses < 3 }
			f.Run(t.Context())
			if n := int(asked.Load()); fails != 3 || pauses != 3 || n > 3*c.most {
				t.Errorf("%d failures and %d pauses in %d requests", fails, pauses, n)
			}
			if kept.complete {
				t.Error("it counts as read")
			}
		})
	}
}

// Pages that have become too old once are read anew at once.
func TestPagesTooOldOnce(t *testing.T) {
	t.Parallel()
	var old atomic.Bool
	client := answering(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		switch r.URL.Query().Get("continue") {
		case "":
			_, _ = w.Write([]byte(listText("more", entryText("a"))))
		default:
			if !old.Swap(true) {
				w.WriteHeader(http.StatusGone)
				_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}`))
				return
			}
			_, _ = w.Write([]byte(listText("", entryText("b"))))
		}
	})
	f, kept := entriesFeed(client, 20, func(_ string, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	if rv, err := f.list(t.Context()); err != nil || rv != "7" || len(kept.objects) != 2 {
		t.Errorf("revision %q, error %v, %d objects", rv, err, len(kept.objects))
	}
}
