package aggregation

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apiserver/pkg/authentication/user"
)

// The headers that name a user, as kube-apiserver sends them. X-Remote-Extra- is followed by the key.
const (
	userHeader  = "X-Remote-User"
	uidHeader   = "X-Remote-Uid"
	groupHeader = "X-Remote-Group"
	extraPrefix = "X-Remote-Extra-"
)

// HeaderOptions are the names of these headers, for what tells other servers whom to believe.
var HeaderOptions = struct{ User, UID, Group, ExtraPrefix string }{userHeader, uidHeader, groupHeader, extraPrefix}

// withheld are headers of a client that no other server gets, in lower case and with - for _: some servers take X_Remote_User
// for X-Remote-User. They name a user, are a credential, say that the method or the sender is another one, let a
// transport send a write twice, or make it wait before it sends a body that is here already. One that ends with - stands for all that begin with it.
var withheld = []string{
	"x-remote-", "impersonate-", "authorization", "proxy-", "cookie", "forwarded", "x-forwarded-", "x-real-ip",
	"x-http-method-override", "x-http-method", "x-method-override", "x-original-", "x-rewrite-", "idempotency-key", "x-idempotency-key", "expect",
}

// isWithheld reports whether a header is one of those that no other server gets.
func isWithheld(name string) bool {
	lower := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	for _, w := range withheld {
		if lower == w || strings.HasSuffix(w, "-") && strings.HasPrefix(lower, w) {
			return true
		}
	}
	return false
}

// withhold removes the headers that no other server gets.
func withhold(h http.Header) {
	for name := range h {
		if isWithheld(name) {
			delete(h, name)
		}
	}
}

// identityOf returns the headers that name a user. It returns an error if the other server would take the user for another one.
func identityOf(u user.Info) (http.Header, error) {
	h := http.Header{}
	set := func(header, what, value string) error {
		if !exact(value) {
			return fmt.Errorf("no header can have %s %q", what, value)
		}
		h[header] = append(h[header], value)
		return nil
	}
	if err := set(userHeader, "the user name", u.GetName()); err != nil {
		return nil, err
	}
	if u.GetUID() != "" {
		if err := set(uidHeader, "the UID", u.GetUID()); err != nil {
			return nil, err
		}
	}
	for _, g := range u.GetGroups() {
		if err := set(groupHeader, "the group", g); err != nil {
			return nil, err
		}
	}
	for key, values := range u.GetExtra() {
		for _, v := range values {
			if err := set(http.CanonicalHeaderKey(extraPrefix+escapeKey(key)), "the extra attribute", v); err != nil {
				return nil, err
			}
		}
	}
	return h, nil
}

// exact reports whether the receiver of a header gets this value: spaces around it would be removed, and an empty one is not
// a value.
func exact(value string) bool {
	return value != "" && httpguts.ValidHeaderFieldValue(value) && strings.Trim(value, " \t") == value
}

// escapeKey escapes a key of extra attributes for the name of a header: receivers make it lower-case, and then decode it as a part
// of a URL.
func escapeKey(key string) string {
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '.':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}
