package policy

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"stele.dev/stele/schemas"
)

// Aggregate is a server that answers the requests for an API group. They are passed on to it after authorization.
type Aggregate struct {
	ID    string `json:"id"` // aggregate/name
	Group string `json:"group"`
	// Versions are the versions of the group, the preferred one first.
	Versions []string `json:"versions"`
	// URL is https://HOST or https://HOST:PORT.
	URL string `json:"url"`
	// CABundle has the certificates that must have signed that of the server, in PEM; "" for those of the system.
	CABundle string `json:"caBundle,omitempty"`
	// ServerName is the name that the certificate must have; "" for the host of the URL.
	ServerName string `json:"serverName,omitempty"`
	// Private allows addresses that are private or of this machine.
	Private bool `json:"private,omitempty"`
	// GroupPriority and VersionPriority are those of an APIService.
	GroupPriority   int `json:"groupPriorityMinimum"`
	VersionPriority int `json:"versionPriority"`
	// ConnectTimeout bounds connecting with TLS, AnswerTimeout the time until the answer begins.
	ConnectTimeout time.Duration `json:"connectTimeout"`
	AnswerTimeout  time.Duration `json:"answerTimeout"`
	// Requests is how many requests the server works on at a time.
	Requests int              `json:"requests"`
	Source   schemas.Position `json:"source,omitzero"`
}

// aggregateID is what the ID of an aggregate begins with.
const aggregateID = "aggregate/"

// AggregateID returns the ID of the aggregate with a name.
func AggregateID(name string) string { return aggregateID + name }

// Name returns the name of the server in the bundle.
func (a *Aggregate) Name() string { return a.ID[len(aggregateID):] }

// Same reports whether both are the same server, reached in the same way, for the same versions. Priorities may differ.
func (a *Aggregate) Same(b *Aggregate) bool {
	return a.ID == b.ID && a.Group == b.Group && slices.Equal(a.Versions, b.Versions) && a.URL == b.URL && a.CABundle == b.CABundle && a.ServerName == b.ServerName &&
		a.Private == b.Private && a.ConnectTimeout == b.ConnectTimeout && a.AnswerTimeout == b.AnswerTimeout && a.Requests == b.Requests
}

// Aggregates returns the servers that answer API groups, sorted by ID.
func (p *Policy) Aggregates() []Aggregate { return p.form.Aggregates }

// Aggregate returns the server that answers a version of a group; nil if that is this server, or if nobody does.
func (p *Policy) Aggregate(gv schema.GroupVersion) *Aggregate {
	if p.aggregates == nil {
		return nil
	}
	return p.aggregates[gv]
}

// indexAggregates returns the aggregates by group and version; nil if there are none.
func indexAggregates(list []Aggregate) map[schema.GroupVersion]*Aggregate {
	if len(list) == 0 {
		return nil
	}
	by := map[schema.GroupVersion]*Aggregate{}
	for i := range list {
		for _, v := range list[i].Versions {
			by[schema.GroupVersion{Group: list[i].Group, Version: v}] = &list[i]
		}
	}
	return by
}

// aggregated reports whether another server answers a group.
func (f *Form) aggregated(group string) bool {
	return slices.ContainsFunc(f.Aggregates, func(a Aggregate) bool { return a.Group == group })
}

// WrongAggregateURL returns what is wrong with the address of a server that answers a group; "" if nothing is.
func WrongAggregateURL(text string, private bool) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "the url cannot be read: " + err.Error()
	case u.Scheme != "https":
		return "the server is reached by TLS only: the url does not begin with https://"
	case u.Hostname() == "":
		return "the url has no host"
	case u.User != nil:
		return "the url has a user: this server shows a client certificate instead"
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return "the url has a path, a query or a fragment: those of each request are sent"
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || len(validation.IsValidPortNum(n)) > 0 {
			return fmt.Sprintf("%q is no port", port)
		}
	}
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil {
		return WrongAggregateAddress(ip, private)
	}
	if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
		return fmt.Sprintf("%q can be the name of no host", host)
	}
	if host == "localhost" && !private {
		return WrongAggregateAddress(netip.IPv6Loopback(), private)
	}
	return ""
}

// sharedAddresses are those that providers share among customers (RFC 6598). Clouds use them inside.
var sharedAddresses = netip.MustParsePrefix("100.64.0.0/10")

// WrongAggregateAddress returns why no connection is made to an address; "" if one may be made.
func WrongAggregateAddress(ip netip.Addr, private bool) string {
	ip = ip.Unmap()
	switch {
	case ip.IsLinkLocalUnicast(), ip.IsMulticast(), ip.IsUnspecified(), !ip.IsValid():
		return fmt.Sprintf("%s is no address of a server: link-local addresses, multicast and 0.0.0.0 are refused", ip)
	case private:
		return ""
	case ip.IsLoopback():
		return fmt.Sprintf("%s is an address of this machine, which private: true would allow", ip)
	case ip.IsPrivate(), sharedAddresses.Contains(ip):
		return fmt.Sprintf("%s is a private address, which private: true would allow", ip)
	}
	return ""
}
