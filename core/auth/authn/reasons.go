package authn

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// Method is an authentication method.
type Method uint8

// These are the methods in the order in which they are tried.
const (
	ByFrontProxy Method = iota
	ByCertificate
	ByToken // a bearer token that no method recognizes
	ByStaticToken
	ByServiceAccount
	ByBootstrapToken
	ByJWT
	ByWebhook
	methods
)

var methodNames = [methods]string{"frontproxy", "certificate", "token", "static", "serviceaccount", "bootstrap", "jwt", "webhook"}

func (m Method) String() string { return methodNames[m] }

// Reason is a class of authentication errors.
type Reason uint8

// These are the reasons.
const (
	Invalid Reason = iota // any other error
	Unknown
	Expired
	NotYetValid
	BadSignature
	WrongAudience
	WrongIssuer
	Malformed
	Revoked
	WrongUsage
	WrongName
	TooLarge
	Unavailable
	Throttled
	reasons
)

var reasonNames = [reasons]string{
	"invalid", "unknown", "expired", "not-yet-valid", "signature", "audience", "issuer", "malformed", "revoked", "usage", "name", "too-large", "unavailable", "throttled",
}

func (r Reason) String() string { return reasonNames[r] }

// meanings explain reasons to operators.
var meanings = map[string]string{
	"invalid":       "not valid",
	"unknown":       "of nobody who is known here",
	"expired":       "expired",
	"not-yet-valid": "not valid yet",
	"signature":     "the signature is not that of a key or authority that is trusted here",
	"audience":      "for another audience",
	"issuer":        "of another issuer",
	"malformed":     "not well-formed",
	"revoked":       "what it was bound to is gone, or it was revoked",
	"usage":         "a certificate that is not for clients",
	"name":          "a certificate with a name that is not allowed, or without one",
	"too-large":     "too large, or of somebody of whom too much is said",
	"unavailable":   "who knows of it did not answer",
	"throttled":     "not checked, because there were too many failures from its source, or too many others to check",
}

// Rejection is the error of a method that recognized a credential and refused it.
type Rejection struct {
	Method Method
	// Reason is the class of Err. If it is Invalid, the class is derived from Err.
	Reason Reason
	Err    error
}

func (r *Rejection) Error() string { return r.Method.String() + ": " + r.Err.Error() }
func (r *Rejection) Unwrap() error { return r.Err }

// rejects converts an error to a Rejection by the method, unless it is one already.
func (m Method) rejects(err error) error {
	if r := (*Rejection)(nil); err == nil || errors.As(err, &r) {
		return err
	}
	return &Rejection{Method: m, Err: err}
}

// methodError adds the method to the errors of an authenticator.
type methodError struct {
	Method
	authenticator.Token
}

func (b methodError) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	resp, ok, err := b.Token.AuthenticateToken(ctx, token)
	return resp, ok, b.rejects(err)
}

// classify returns the method and the reason of a failure: those of the first refused credential. If no method
// recognized the token, the method is ByToken.
func classify(err error) (Method, Reason) {
	var r *Rejection
	if !errors.As(firstError(err), &r) && !errors.As(err, &r) {
		if reason := reasonOf(err); reason != Invalid {
			return ByToken, reason
		}
		return ByToken, Unknown
	}
	if r.Reason != Invalid {
		return r.Method, r.Reason
	}
	return r.Method, reasonOf(r.Err)
}

// errIssuer reports a JWT whose issuer no method knows.
var errIssuer = &Rejection{Method: ByToken, Reason: WrongIssuer, Err: errors.New("a JWT of an issuer that is not configured")}

// IssuerOf returns the issuer that a JWT names, "" if the token is not a JWT. The token is not verified: use it in
// error messages only.
func IssuerOf(token string) string {
	_, rest, _ := strings.Cut(token, ".")
	payload, signature, ok := strings.Cut(rest, ".")
	if !ok || strings.Contains(signature, ".") {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if text, err := base64.RawURLEncoding.DecodeString(payload); err != nil || json.Unmarshal(text, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// firstError returns the first of joined errors.
func firstError(err error) error {
	for {
		all, ok := err.(utilerrors.Aggregate)
		if !ok || len(all.Errors()) == 0 {
			return err
		}
		err = all.Errors()[0]
	}
}

// reasonOf returns the class of an error. Most errors of Kubernetes' authenticators have no type, so it compares their
// text. Unknown errors are Invalid.
func reasonOf(err error) Reason {
	var certificate x509.CertificateInvalidError
	var authority x509.UnknownAuthorityError
	switch {
	case throttledIn(err) != nil:
		return Throttled
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Unavailable
	case errors.As(err, &authority):
		return BadSignature
	case errors.As(err, &certificate):
		switch certificate.Reason {
		case x509.Expired:
			if strings.Contains(certificate.Detail, "is before") {
				return NotYetValid
			}
			return Expired
		case x509.IncompatibleUsage:
			return WrongUsage
		}
		return Invalid
	}
	text := strings.ToLower(err.Error())
	for _, c := range texts {
		for _, part := range c.parts {
			if strings.Contains(text, part) {
				return c.reason
			}
		}
	}
	return Invalid
}

// texts map parts of error texts to reasons. The first match counts.
var texts = []struct {
	reason Reason
	parts  []string
}{
	{TooLarge, []string{"bytes, more than"}},
	{WrongName, []string{"not in the allowed list"}},
	{Unavailable, []string{"is not healthy", "not initialized", "connection refused", "failed to get keys", "fetching keys"}},
	{NotYetValid, []string{"not valid yet", "before the nbf", "issued in the future", "in the future"}},
	{Expired, []string{"expired"}},
	{Revoked, []string{"invalidated", "has been deleted", "does not match claim", "does not match service account", "revoked"}},
	{WrongAudience, []string{"audience"}},
	{WrongIssuer, []string{"issuer"}},
	{Malformed, []string{"malformed", "unmarshal", "decoding", "parse", "compact jwt", "token encoding", "more than one", "tokens specified"}},
	{BadSignature, []string{"signature", "signing alg", "no keys found"}},
	{Unknown, []string{"unknown", "not found", "invalid bearer token"}},
}
