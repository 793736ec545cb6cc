// Package textforms checks the format of strings: CUE's named tests (net.IPv4) and the formats of
// OpenAPI (date-time).
package textforms

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	cuenet "cuelang.org/go/pkg/net"
	cuetime "cuelang.org/go/pkg/time"
)

// A Form is one of CUE's named tests of strings. It calls CUE's own function, except for functions that
// take CUE values.
type Form struct {
	Admits  func(string) bool
	Phrase  string
	Samples []string // the first is valid, the last is not
}

// Named returns the test that a name in CUE stands for: that of a function, such as net.IPv4, or of a call with a constant, such as
// time.Format("2006-01-02").
func Named(name string) (Form, bool) {
	f, ok := byName[name]
	if function, rest, called := strings.Cut(name, "("); called && calls[function] != nil {
		argument, err := strconv.Unquote(strings.TrimSuffix(rest, ")"))
		return calls[function](argument), err == nil
	}
	return f, ok
}

// Call returns the name of a call of a function with a constant, and false if [Named] does not know the function.
func Call(function, argument string) (name string, ok bool) {
	return function + "(" + strconv.Quote(argument) + ")", calls[function] != nil
}

// calls are the tests that depend on a constant.
var calls = map[string]func(string) Form{
	"time.Format": func(layout string) Form {
		sample := time.Date(2006, 1, 2, 15, 4, 5, 0, time.UTC).Format(layout)
		return Form{passes(func(s string) (bool, error) { return cuetime.Format(s, layout) }), "a time in the form " + layout, []string{sample, sample + " "}}
	},
	"strings.HasPrefix": func(part string) Form { return contains("a text that begins with", part, strings.HasPrefix) },
	"strings.HasSuffix": func(part string) Form { return contains("a text that ends with", part, strings.HasSuffix) },
	"strings.Contains":  func(part string) Form { return contains("a text that contains", part, strings.Contains) },
}

func contains(phrase, argument string, test func(s, part string) bool) Form {
	return Form{func(s string) bool { return test(s, argument) }, phrase + " " + strconv.Quote(argument), []string{argument, argument + argument, ""}}
}

// byName maps the names of functions to their tests.
var byName = map[string]Form{
	"time.Time":     {passes(cuetime.Time), "a date and time as in RFC 3339, such as 2006-01-02T15:04:05Z", []string{"2006-01-02T15:04:05Z", "2006-01-02T15:04:05.5+07:00", "2006-01-02"}},
	"time.Duration": {passes(cuetime.Duration), "a duration such as 1h30m", []string{"1h30m", "0", "-1.5s", "1 day"}},
	"net.IP":        {address(netip.Addr.IsValid), "an IP address", []string{"192.0.2.1", "2001:db8::1", "192.0.2"}},
	"net.IPv4":      {address(netip.Addr.Is4), "an IPv4 address", []string{"192.0.2.1", "2001:db8::1"}},
	"net.IPv6":      {address(netip.Addr.Is6), "an IPv6 address", []string{"2001:db8::1", "::ffff:192.0.2.1", "192.0.2.1"}},
	"net.IPCIDR":    {isCIDR, "an IP address with the length of a prefix, such as 192.0.2.0/24", []string{"192.0.2.0/24", "2001:db8::/32", "192.0.2.0"}},
	"net.FQDN":      {cuenet.FQDN, "a domain name", []string{"a.example.com", "example.com.", "-a..b"}},
	"net.URL":       {passes(cuenet.URL), "a URL", []string{"https://example.com/a", "a/b", ":"}},
	"net.AbsURL":    {passes(cuenet.AbsURL), "an absolute URL", []string{"https://example.com/a", "a/b"}},
}

func passes(test func(string) (bool, error)) func(string) bool {
	return func(s string) bool {
		ok, err := test(s)
		return ok && err == nil
	}
}

func address(is func(netip.Addr) bool) func(string) bool {
	return func(s string) bool {
		a, err := netip.ParseAddr(s)
		return err == nil && is(a)
	}
}

func isCIDR(s string) bool {
	_, err := netip.ParsePrefix(s)
	return err == nil
}
