package replicas

// Keys identify the keys that a replica uses.
type Keys struct {
	// Authority is the SHA-256 of the public key of its certificate authority, in hexadecimal; "" if it has none.
	Authority string
	// Tokens are the IDs of the keys that verify tokens of service accounts, sorted. Signing is the ID of the one that
	// signs; leases do not say it.
	Tokens  []string
	Signing string
}
