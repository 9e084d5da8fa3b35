package foreign

// Access is what a client of a registry shows and believes. It never appears in logs, errors or statuses.
type Access struct {
	Token                string // Consul's ACL token, or a bearer token
	Username, Password   string
	AccessKey, SecretKey string // Nacos' signatures
	CA, Cert, Key        []byte // PEM: the authorities to believe (those of the machine if empty), and what to show for mutual TLS
}

// String keeps credentials out of formatted text.
func (Access) String() string { return "credentials" }

// GoString keeps them out of %#v.
func (Access) GoString() string { return "credentials" }
