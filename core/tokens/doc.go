// Package tokens is about the credentials that the control plane gives out by itself: the
// tokens of service accounts (KEP-1205, KEP-2907, KEP-4193), which it signs, verifies and
// lets others verify (OpenID Connect Discovery 1.0, RFC 7517), also those without an end that
// Secrets hold, and bootstrap tokens, which are Secrets.
//
// What a token says is verified once, and remembered. Whether it still stands is looked up
// at every request, in the objects of the tip: a token is dead with the first request after
// its service account, or what it is bound to, is gone.
package tokens
