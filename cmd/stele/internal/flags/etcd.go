package flags

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"stele.dev/stele/eventlog/etcdlog"
)

// leastRequest is the smallest limit of requests with which batches of the log and single objects have room.
const leastRequest = 1536 << 10

// Etcd are the flags on an etcd cluster that keeps the log.
type Etcd struct {
	etcdlog.DialOptions
	maxRequest resource.QuantityValue
}

// AddFlags adds the flags. without says where the log is if there are no endpoints.
func (o *Etcd) AddFlags(f *pflag.FlagSet, without string) {
	o.maxRequest.Quantity = *resource.NewQuantity(etcdlog.DefaultMaxRequest, resource.BinarySI)
	f.StringSliceVar(&o.Endpoints, "etcd-endpoints", nil, "client URLs of the members of an etcd cluster that keeps the log ("+without+")")
	f.StringVar(&o.CAFile, "etcd-cafile", "", "authorities of the certificates of that etcd's members, in PEM (default: those of the system)")
	f.StringVar(&o.CertFile, "etcd-certfile", "", "client certificate for that etcd, in PEM")
	f.StringVar(&o.KeyFile, "etcd-keyfile", "", "private key of --etcd-certfile, in PEM")
	f.StringVar(&o.Username, "etcd-user", "", "user of that etcd, if it authenticates users by passwords; needs https endpoints")
	f.StringVar(&o.PasswordFile, "etcd-password-file", "", "file with the password of --etcd-user")
	f.BoolVar(&o.PlainHTTP, "etcd-plain-http", false, "accept endpoints of --etcd-endpoints without TLS that are not on this machine; whoever is on the network between can read and change the whole log")
	f.StringVar(&o.Prefix, "etcd-prefix", etcdlog.DefaultPrefix, "prefix of all keys in that etcd; logs with different prefixes share a cluster")
	f.Var(&o.maxRequest, "etcd-max-request-bytes", "largest request that the members of that etcd accept, as their --max-request-bytes says")
}

// Check returns an error for flags that do not go together.
func (o *Etcd) Check() error {
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return errors.New("--etcd-certfile and --etcd-keyfile belong together: give both")
	case (o.Username == "") != (o.PasswordFile == ""):
		return errors.New("--etcd-user and --etcd-password-file belong together: give both")
	case len(o.Endpoints) == 0 && (o.CAFile != "" || o.CertFile != "" || o.Username != ""):
		return errors.New("the flags for the credentials of an etcd need --etcd-endpoints")
	case o.maxRequest.Value() < leastRequest:
		return fmt.Errorf("--etcd-max-request-bytes %s: want at least %s, which is etcd's default", o.maxRequest.String(), resource.NewQuantity(leastRequest, resource.BinarySI))
	}
	return nil
}

// Dial returns the options for the cluster, nil if there are no endpoints.
func (o *Etcd) Dial(logger *slog.Logger) *etcdlog.DialOptions {
	if len(o.Endpoints) == 0 {
		return nil
	}
	o.MaxRequest, o.Log = int(o.maxRequest.Value()), logger
	return &o.DialOptions
}
