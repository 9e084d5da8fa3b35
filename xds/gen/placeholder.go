package gen

import (
	"errors"

	"github.com/isthmus-mesh/isthmus/pushcontext"
)

type none struct{}

func (none) Kinds() []pushcontext.ViewKind                         { return nil }
func (none) Key(string) (pushcontext.ViewKey, bool)                { return pushcontext.ViewKey{}, false }
func (none) Traits(pushcontext.View) Traits                        { return 0 }
func (none) Names(pushcontext.View, Class) []string                { return nil }
func (none) Build(pushcontext.View, Class, string) ([]byte, error) { return nil, errors.New("none") }

// Clusters makes CDS resources.
type Clusters struct{ none }

// Endpoints makes EDS resources.
type Endpoints struct{ none }

// Listeners makes LDS resources.
type Listeners struct{ none }

// Routes makes RDS resources.
type Routes struct{ none }

func (Clusters) TypeURL() string  { return ClusterURL }
func (Endpoints) TypeURL() string { return EndpointURL }
func (Listeners) TypeURL() string { return ListenerURL }
func (Routes) TypeURL() string    { return RouteURL }
