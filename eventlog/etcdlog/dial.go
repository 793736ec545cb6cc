package etcdlog

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog/members"
)

// DialOptions for [Dial].
type DialOptions struct {
	// Endpoints are the client URLs of the cluster's members.
	Endpoints []string
	// CAFile has the authorities of the members' certificates; the system's if empty. CertFile and KeyFile have the
	// certificate of this client. All are PEM, and read again for each connection.
	CAFile, CertFile, KeyFile string
	// Username and PasswordFile are for clusters with etcd's authentication. The file is read again for each login. All
	// endpoints must then use TLS.
	Username, PasswordFile string
	// PlainHTTP allows endpoints without TLS that are not addresses of this machine.
	PlainHTTP bool
	// Prefix is the prefix of the log's keys; [DefaultPrefix] if empty. Logs with different prefixes share a cluster.
	Prefix string
	// MaxRequest is the size in bytes of the largest request that the members accept; [DefaultMaxRequest] if 0.
	MaxRequest int
	// Log receives messages for operators; nil discards them.
	Log *slog.Logger
}

// DefaultPrefix is the prefix of the keys of a log.
const DefaultPrefix = "/stele"

// DefaultMaxRequest is the size in bytes of the largest request that an etcd with default settings accepts.
const DefaultMaxRequest = 1536 << 10

// maxPrefix is the longest prefix in bytes. Each request has it a few times.
const maxPrefix = 200

// Dial returns a backend that keeps the log in an etcd cluster. Closing it closes its connections. Dial returns an error if
// the cluster cannot be used, see [members.Open]. It writes nothing, and does not look at what is stored: see
// [Backend.CheckKeys].
func Dial(ctx context.Context, o DialOptions) (*Backend, error) {
	prefix, err := cleanPrefix(o.Prefix)
	if err != nil {
		return nil, err
	}
	if o.MaxRequest == 0 {
		o.MaxRequest = DefaultMaxRequest
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	cluster, err := members.Open(ctx, members.Options{
		Endpoints: o.Endpoints, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, Username: o.Username, PasswordFile: o.PasswordFile, PlainHTTP: o.PlainHTTP, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	b := newBackend(cluster.Client(), prefix, eventlog.Limits{Value: o.MaxRequest - 1<<10 - 16*len(prefix)})
	b.cluster = cluster
	space := &capacity{members: cluster.Members, askAll: cluster.AskAll, log: o.Log}
	b.room, b.usage, b.full = space.take, space.usage, space.refuse
	b.close = cluster.Close
	b.user = o.Username
	return b, nil
}

// cleanPrefix returns a prefix with a slash at its beginning and none at its end.
func cleanPrefix(prefix string) (string, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	clean := "/" + strings.Trim(prefix, "/")
	if clean == "/" || strings.Contains(clean, "//") || strings.ContainsFunc(clean, func(r rune) bool { return r <= ' ' || r > '~' }) || len(clean) > maxPrefix {
		return "", fmt.Errorf("%q is no prefix for the keys of a log: want names with slashes between them, like %s, of at most %d characters", prefix, DefaultPrefix, maxPrefix)
	}
	return clean, nil
}
