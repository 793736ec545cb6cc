package call

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/eventlog/logpb"
)

// decidedOutside adds what an authorizer outside of the policy said, if it was one that decided.
func (c *Call) AddProgram(to *logpb.Decisions) {
	if by := c.Decision.By(); by != nil {
		to.Reason, to.Program = UTF8(by.Reason), by.Program
	}
}

// actor is in whose name the request is, and who sent it if that is somebody else.
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

// utf8 makes a string that came from outside fit to be encoded, and bounded.
func UTF8(s string) string {
	const longest = 4096
	if len(s) > longest {
		s = s[:longest]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func SourceIPs(h *http.Request) []string {
	host, _, err := net.SplitHostPort(h.RemoteAddr)
	if err != nil {
		return nil
	}
	return []string{host}
}
