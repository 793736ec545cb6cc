package authn

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// readUser returns the user that the headers of a front proxy name, or false if they name none. It reads them as
// k8s.io/apiserver/pkg/authentication/request/headerrequest does, whose package imports all clients of client-go.
func (o *FrontProxyOptions) readUser(h http.Header) (user.Info, bool) {
	name := firstValue(h, o.UsernameHeaders)
	if name == "" {
		return nil, false
	}
	return &user.DefaultInfo{
		Name: name, UID: firstValue(h, o.UIDHeaders), Groups: allValues(h, o.GroupHeaders), Extra: readExtra(h, o.ExtraHeaderPrefixes),
	}, true
}

// authenticateHeaders is an authenticator.Request for requests that a front proxy has sent.
func (p *FrontProxy) authenticateHeaders(r *http.Request) (*authenticator.Response, bool, error) {
	u, ok := p.options.readUser(r.Header)
	if !ok {
		return nil, false, nil
	}
	return &authenticator.Response{User: u}, true, nil
}

// firstValue returns the first value of the first of some headers that has one.
func firstValue(h http.Header, names []string) string {
	for _, name := range names {
		if value := h.Get(name); value != "" {
			return value
		}
	}
	return ""
}

// allValues returns the values of some headers, without empty ones.
func allValues(h http.Header, names []string) []string {
	all := []string{}
	for _, name := range names {
		for _, value := range h.Values(name) {
			if value != "" {
				all = append(all, value)
			}
		}
	}
	return all
}

// readExtra returns the values of all headers that begin with one of the prefixes, by the rest of their names. Prefixes
// are the outer loop, so that values are in their order.
func readExtra(h http.Header, prefixes []string) map[string][]string {
	extra := map[string][]string{}
	for _, prefix := range prefixes {
		for name, values := range h {
			if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
				continue
			}
			key := strings.ToLower(name[len(prefix):])
			if decoded, err := url.PathUnescape(key); err == nil {
				key = decoded
			}
			extra[key] = append(extra[key], values...)
		}
	}
	return extra
}
