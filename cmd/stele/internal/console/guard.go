package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"sync"
)

// keyHeader is the header in which the page sends the key of its session. Cookies are shared by all ports of a host, so a
// program of another user on another port could learn the cookie. The key is where only this origin can read it. Pages of other
// origins cannot set the header.
const keyHeader = "Stele-Console-Key"

// guard lets only the browser in that has opened the link. It is safe for concurrent use.
type guard struct {
	host   string // address and port, which a request must name
	cookie string // its name, of this port only
	token  string
	// The session that the token was exchanged for. Its key is also in the page.
	session, key string

	mu   sync.Mutex
	used bool // Invariant: the session is given out at most once
}

func newGuard(host string) *guard {
	_, port, _ := splitHostPort(host)
	return &guard{host: host, cookie: "stele-console-" + port, token: newSecret(), session: newSecret(), key: newSecret()}
}

// splitHostPort splits host:port as [net.SplitHostPort] does.
func splitHostPort(host string) (name, port string, err error) {
	u := url.URL{Host: host}
	if u.Port() == "" {
		return "", "", fmt.Errorf("%q has no port", host)
	}
	return u.Hostname(), u.Port(), nil
}

// newSecret returns 256 random bits as text.
func newSecret() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// same compares secrets in constant time.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// link returns the link that opens the page, once.
func (g *guard) link() string { return "http://" + g.host + "/?token=" + g.token }

// refusal is why a request is refused.
type refusal struct {
	code int
	text string
}

// checkOrigin refuses requests that pages of other sites make, and those to a name that leads to this address (DNS rebinding).
func (g *guard) checkOrigin(r *http.Request) *refusal {
	if r.Host != g.host {
		return &refusal{http.StatusMisdirectedRequest, fmt.Sprintf("this is http://%s, and no other name leads here: open the link that stele console has printed", g.host)}
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+g.host {
		return &refusal{http.StatusForbidden, "another site asks: only the console's own page may"}
	}
	// none is a link that the user has opened.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return &refusal{http.StatusForbidden, "another site has led here: copy the link into the address bar"}
	}
	return nil
}

// exchange exchanges the token of the link for the session, once. It reports whether it did.
func (g *guard) exchange(w http.ResponseWriter, token string) bool {
	if !same(token, g.token) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.used {
		return false
	}
	g.used = true
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	return true
}

// checkSession refuses requests without the session's cookie.
func (g *guard) checkSession(r *http.Request) *refusal {
	if cookie, err := r.Cookie(g.cookie); err == nil && same(cookie.Value, g.session) {
		return nil
	}
	return &refusal{http.StatusForbidden, "this browser has not opened the link that stele console has printed. The link works once: if it was used, start stele console again"}
}

// checkKey refuses requests for what only the page may read.
func (g *guard) checkKey(r *http.Request) *refusal {
	if same(r.Header.Get(keyHeader), g.key) {
		return nil
	}
	return &refusal{http.StatusForbidden, "the page belongs to a console that has ended: open the link that stele console has printed"}
}
