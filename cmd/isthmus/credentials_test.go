package main

import (
	"context"
	"errors"
	"testing"

	"github.com/isthmus-mesh/isthmus/aggregate/model"
	"github.com/isthmus-mesh/isthmus/secrets"
)

// script is a source of credentials that says what a test wants.
type script func(contact func(error), claims func([]secrets.Claim)) error

func (s script) source(n *notes, r *relay) *claimSource {
	return &claimSource{
		key: model.ShardKey{Provider: model.ProviderSecrets, Cluster: "east"}, relay: r,
		watch: func(_ context.Context, contact func(error), claims func([]secrets.Claim)) error {
			return s(contact, claims)
		},
		tell: func(claims []secrets.Claim) { n.note("claims %d", len(claims)) },
	}
}

// TestClaimSource: the claims are passed on before the registry has synced, contact shows, and an error ends the run.
func TestClaimSource(t *testing.T) {
	t.Parallel()
	n, why := &notes{}, errors.New("no route")
	s := script(func(contact func(error), claims func([]secrets.Claim)) error {
		contact(why)
		contact(nil)
		claims(nil)
		claims(make([]secrets.Claim, 2))
		contact(why)
		contact(nil)
		return why
	}).source(n, &relay{})
	if err := s.Run(t.Context(), n); !errors.Is(err, why) || s.Key().String() != "secrets/east" {
		t.Errorf("%s: %v", s.Key(), err)
	}
	n.want(t, "syncing no route", "syncing ", "claims 0", "replace 0", "claims 2", "stale no route", "live ")
}

// TestClaimSourceReplaced: claims of a source that was replaced don't count any more.
func TestClaimSourceReplaced(t *testing.T) {
	t.Parallel()
	n, r := &notes{}, &relay{}
	old := script(func(_ func(error), claims func([]secrets.Claim)) error {
		claims(make([]secrets.Claim, 1))
		next := script(func(_ func(error), claims func([]secrets.Claim)) error {
			claims(make([]secrets.Claim, 2))
			return nil
		}).source(n, r)
		if err := next.Run(t.Context(), &notes{}); err != nil {
			return err
		}
		claims(make([]secrets.Claim, 3))
		return nil
	}).source(n, r)
	if err := old.Run(t.Context(), n); err != nil {
		t.Error(err)
	}
	n.want(t, "claims 1", "replace 0", "claims 2")
}

// problemNotes notes the problems of each status too.
type problemNotes struct{ *notes }

func (n problemNotes) Status(s model.Status) { n.note("%s %q %v", s.State, s.Err, s.Problems) }

// TestClaimSourceTellsWhatIsNoCluster: claims that do not tell of which cluster they are are problems of the source, until
// they have gone, and whatever becomes of contact.
func TestClaimSourceTellsWhatIsNoCluster(t *testing.T) {
	t.Parallel()
	n := problemNotes{&notes{}}
	stray := []secrets.Claim{{Source: "/c/README.txt", Err: errors.New("not a kubeconfig")}, {Cluster: "a/b", Source: "/c/b", Err: errors.New("no id")}}
	s := script(func(contact func(error), claims func([]secrets.Claim)) error {
		claims(stray)
		claims(stray)
		contact(errors.New("lost"))
		contact(nil)
		claims(stray[1:])
		return nil
	}).source(n.notes, &relay{})
	if err := s.Run(t.Context(), n); err != nil {
		t.Error(err)
	}
	const readme = `[{/c/README.txt 0 not a kubeconfig 0001-01-01 00:00:00 +0000 UTC false false 0}]`
	n.want(t, "claims 2", "replace 0", `live "" `+readme, "claims 2", `stale "lost" `+readme, `live "" `+readme, "claims 1", `live "" []`)
}
