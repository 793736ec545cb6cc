package etcdlog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// DialOptions for [Dial].
type DialOptions struct {
	// Endpoints are the client URLs of the cluster's members.
	Endpoints []string
	// CAFile has the authorities of the members' certificates; the system's if empty. CertFile and KeyFile have the
	// certificate of this client. All are PEM, and read again when they change.
	CAFile, CertFile, KeyFile string
	// Username and PasswordFile are for clusters with etcd's authentication.
	Username, PasswordFile string
	// Prefix is the prefix of the log's keys; [DefaultPrefix] if empty. Logs with different prefixes share a cluster.
	Prefix string
	// MaxValue is the largest value that the cluster accepts, in bytes; [DefaultMaxValue] if 0.
	MaxValue int
	// Log receives messages for operators; nil discards them.
	Log *slog.Logger
}

// DefaultPrefix is the prefix of the keys of a log.
const DefaultPrefix = "/stele"

// dialTimeout is how long one attempt to connect may take.
const dialTimeout = 5 * time.Second

// Dial returns a backend that keeps the log in an etcd cluster. Closing it closes its connections.
func Dial(ctx context.Context, o DialOptions) (*Backend, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New("no endpoint of etcd is given")
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: o.Endpoints, DialTimeout: dialTimeout, DialKeepAliveTime: dialTimeout, DialKeepAliveTimeout: dialTimeout, Username: o.Username,
	})
	if err != nil {
		return nil, err
	}
	if _, err := client.Get(ctx, o.Prefix+"/head"); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	b := New(client, o.Prefix, o.MaxValue)
	b.close = client.Close
	return b, nil
}
