// Package tokens issues and verifies the control plane's own credentials. It signs and verifies the tokens of service
// accounts (KEP-1205, KEP-2907, KEP-4193), and lets others verify them (OpenID Connect Discovery 1.0, RFC
// 7517). This includes tokens without expiry, which are stored in Secrets. It also verifies bootstrap tokens, which
// are Secrets.
//
// The signature of a token is verified once, and the result is cached. Whether the token is still valid is looked up
// for every request in the objects at the tip: as soon as its service account, or the object it is bound to, is
// deleted, the token is refused.
package tokens
