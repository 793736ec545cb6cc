package call

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/eventlog/logpb"
)

// AddProgram records the reason and the program of an external authorizer, if one decided about the request.
func (c *Call) AddProgram(to *logpb.Decisions) {
	if by := c.Decision.By(); by != nil {
		to.Reason, to.Program = UTF8(by.Reason), by.Program
	}
}

// Actor returns the user of the request, and the impersonator if there is one.
func (c *Call) Actor() *logpb.Actor {
	a := actor(c.User)
	if c.User != c.Requester {
		a.Impersonator = actor(c.Requester)
	}
	return a
}

func actor(u user.Info) *logpb.Actor {
	a := &logpb.Actor{User: UTF8(u.GetName()), Uid: UTF8(u.GetUID())}
	for _, g := range u.GetGroups() {
		a.Groups = append(a.Groups, UTF8(g))
	}
	keys := make([]string, 0, len(u.GetExtra()))
	for k := range u.GetExtra() {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		x := &logpb.Extra{Key: UTF8(k)}
		for _, v := range u.GetExtra()[k] {
			x.Values = append(x.Values, UTF8(v))
		}
		a.Extra = append(a.Extra, x)
	}
	return a
}

// UTF8 cuts a client's string to 4 KiB and makes it valid UTF-8, so that an event can hold it.
func UTF8(s string) string {
	const longest = 4096
	if len(s) > longest {
		s = s[:longest]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// SourceIPs returns the client's address, or nil if it is unknown.
func SourceIPs(h *http.Request) []string {
	host, _, err := net.SplitHostPort(h.RemoteAddr)
	if err != nil {
		return nil
	}
	return []string{host}
}
