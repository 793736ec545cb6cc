package replicas

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

//go:generate go run stele.dev/stele/core/catalog/openapi/internal/swaggerdoc

// ReplicaObject is a server that serves the log. Servers that share a log are replicas of each other. It is made of the
// server's Lease in kube-system, which is renewed every 10 seconds, and not stored itself.
type ReplicaObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Status is what the server says of itself, and what the server that answers knows of it.
	Status Status `json:"status"`
}

// Status is the state of a replica.
type Status struct {
	// Address is the host and port of its API.
	Address string `json:"address,omitempty"`
	// Build is the version of the program.
	Build string `json:"build,omitempty"`
	// Level is the highest format level of the log that it reads.
	Level int64 `json:"level"`
	// Applied is the last revision that is in all of its projections.
	Applied uint64 `json:"applied"`
	// Sealed is the last revision in its files of older events.
	Sealed uint64 `json:"sealed,omitempty"`
	// Lag is how many revisions its projections were behind the log when its lease was renewed.
	Lag uint64 `json:"lag"`
	// Renewed is when its lease was renewed, by its own clock.
	Renewed string `json:"renewed"`
	// Live is false if the lease was not renewed in time: the server was killed, or cannot reach the log.
	Live bool `json:"live"`
	// Leader is true if it leads: it does what one replica does for all.
	Leader bool `json:"leader"`
	// Runs are the names of what it runs when it leads.
	Runs []string `json:"runs,omitempty"`
	// Self is true if it is the server that answers.
	Self bool `json:"self,omitempty"`
	// Keys are the keys that it uses.
	Keys KeysStatus `json:"keys"`
	// CABundle has the certificate of the authority that certifies the addresses of all replicas, in PEM. Only the server that
	// answers has it, of itself. Clients must verify other addresses with it before they send credentials there.
	CABundle []byte `json:"caBundle,omitempty"`
	// Configuration is a digest of its files on authorization and authentication.
	Configuration string `json:"configuration,omitempty"`
}

// KeysStatus identifies the keys of a replica.
type KeysStatus struct {
	// Same says whether they are those of the server that answers: same or other.
	Same string `json:"same"`
	// Authority is the SHA-256 of the public key of its certificate authority.
	Authority string `json:"authority,omitempty"`
	// ServiceAccounts are the IDs of the keys that verify tokens of service accounts.
	ServiceAccounts []string `json:"serviceAccounts,omitempty"`
	// Audit identifies the key of the hashes in audit lines.
	Audit string `json:"audit,omitempty"`
	// Server is the SHA-256 of the public key of its own server certificate, in hexadecimal. Clients must compare it before they send
	// credentials to the address.
	Server string `json:"server,omitempty"`
}
