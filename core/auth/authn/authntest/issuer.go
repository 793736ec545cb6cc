// Package authntest provides an issuer of JWTs for tests, with OpenID Connect discovery and keys over HTTPS, and
// tokens that are valid, or invalid in many ways.
package authntest

import (
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// Audience is the default audience of tokens.
const Audience = "stele"

// Issuer issues tokens, and publishes the keys that verify them. It is safe for concurrent use.
type Issuer struct {
	// URL is the issuer's name, the claim iss.
	URL string
	// CA is the authority of its certificate, as PEM.
	CA string

	server *httptest.Server
	mu     sync.Mutex
	keys   []*Key // published; the first one signs
	down   bool
	asked  chan struct{} // closed at the next request; nil if nobody waits
}

// New starts an issuer on this machine that signs with RS256. The caller must close it.
func New() *Issuer {
	i := &Issuer{keys: []*Key{NewKey("first", "RS256")}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.answer(w, map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "response_types_supported": []string{"id_token"},
			"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256", "ES256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		keys := make([]map[string]string, len(i.keys))
		for n, k := range i.keys {
			keys[n] = k.public()
		}
		i.mu.Unlock()
		i.answer(w, map[string]any{"keys": keys})
	})
	i.server = httptest.NewTLSServer(mux)
	i.URL = i.server.URL
	i.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw}))
	return i
}

// Close stops the issuer.
func (i *Issuer) Close() { i.server.Close() }

func (i *Issuer) answer(w http.ResponseWriter, v any) {
	i.mu.Lock()
	down := i.down
	if i.asked != nil {
		close(i.asked)
		i.asked = nil
	}
	i.mu.Unlock()
	if down {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// Down makes the issuer answer with errors only, or stops that.
func (i *Issuer) Down(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Asked returns a channel that is closed at the next request.
func (i *Issuer) Asked() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.asked == nil {
		i.asked = make(chan struct{})
	}
	return i.asked
}

// Publish replaces the keys. The first one signs from now on.
func (i *Issuer) Publish(keys ...*Key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = keys
}

// Key returns the key that signs.
func (i *Issuer) Key() *Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[0]
}

// Claims returns the claims of a valid token for a subject, overridden by others; a nil value removes a claim.
func (i *Issuer) Claims(subject string, others map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{"iss": i.URL, "sub": subject, "aud": Audience, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	maps.Copy(claims, others)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

// Token returns a signed token for a subject, with these claims over the usual ones.
func (i *Issuer) Token(subject string, others map[string]any) string {
	return i.Key().Sign(nil, i.Claims(subject, others))
}

// Configuration returns an AuthenticationConfiguration with issuers whose subjects are users.
func Configuration(issuers ...*Issuer) string {
	var b strings.Builder
	b.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n")
	for _, i := range issuers {
		b.WriteString(i.Entry())
		b.WriteString("  claimMappings:\n    username: {claim: sub, prefix: \"\"}\n    groups: {claim: groups, prefix: \"\"}\n")
	}
	return b.String()
}

// Entry returns the beginning of an issuer's entry under jwt in an AuthenticationConfiguration. Text after it is
// indented by two.
func (i *Issuer) Entry() string {
	return "- issuer:\n    url: " + i.URL + "\n    audiences: [" + Audience + "]\n    certificateAuthority: |\n      " +
		strings.ReplaceAll(strings.TrimSpace(i.CA), "\n", "\n      ") + "\n"
}
