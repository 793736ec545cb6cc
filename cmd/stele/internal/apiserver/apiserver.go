// Package apiserver takes the flags of kube-apiserver, and sets those of `stele serve`.
package apiserver

import (
	"embed"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"stele.dev/stele/policy/bundles"
)

// Name is the name of the command, and of the program that is this command.
const Name = "kube-apiserver"

// dataDir is the default folder of the data, unless there is --cert-dir.
const dataDir = "/var/lib/stele"

//go:embed policy
var policy embed.FS

// Policy returns the bundle of a server that is given none.
func Policy() (*bundles.Source, error) {
	folder, err := fs.Sub(policy, "policy")
	if err != nil {
		return nil, err
	}
	return bundles.ReadFS(folder, ".")
}

// Flags are the flags of kube-apiserver that serve has by another name, or not at all. Serve's others have the names and meanings of
// kube-apiserver's.
type Flags struct {
	bind                net.IP
	port                int
	certDir             string
	etcd                []string
	hostname            string
	verbosity           int
	logFormat           string
	requests, mutations int
	modes               []string
	enabled, disabled   []string
	own, without        *pflag.FlagSet
}

// AddFlags adds the flags of kube-apiserver: those that have an effect, those that concern nothing that is served, and, hidden, those
// that are refused.
func (o *Flags) AddFlags(f, without *pflag.FlagSet) {
	o.own, o.without = f, without
	f.IPVar(&o.bind, "bind-address", net.IPv4zero, "address on which the API is served")
	f.IntVar(&o.port, "secure-port", 6443, "port of the API")
	f.StringVar(&o.certDir, "cert-dir", "", "folder with apiserver.crt and apiserver.key, which are made if they are missing; without --tls-cert-file")
	f.StringSliceVar(&o.etcd, "etcd-servers", nil, "client URLs of the members of an etcd cluster that keeps the log (default: an etcd embedded in this process)")
	f.StringVar(&o.hostname, "external-hostname", "", "a further name for the server's own certificate")
	f.IntVarP(&o.verbosity, "v", "v", 0, "what is logged: from 0 on info, from 4 on debug (default: warnings)")
	f.StringVar(&o.logFormat, "logging-format", "text", "format of the program's own messages: text or json")
	f.IntVar(&o.requests, "max-requests-inflight", 400, "how many requests run at a time, together with --max-mutating-requests-inflight")
	f.IntVar(&o.mutations, "max-mutating-requests-inflight", 200, "how many requests run at a time, together with --max-requests-inflight")
	f.StringSliceVar(&o.modes, "authorization-mode", []string{"RBAC"}, "authorizers: RBAC and Node. Others are in the field authorizers of a bundle")
	f.StringSliceVar(&o.enabled, "enable-admission-plugins", nil, "admission plugins that must be on")
	f.StringSliceVar(&o.disabled, "disable-admission-plugins", nil, "admission plugins that must be off")
	for _, c := range only {
		f.Var(&onlyValue{only: c}, c.name, c.usage())
		f.Lookup(c.name).NoOptDefVal = c.ifBare
	}
	for _, c := range withoutEffect {
		without.Var(&ignoredValue{ignored: c}, c.name, "concerns "+c.concerns)
		if c.boolean {
			without.Lookup(c.name).NoOptDefVal = "true"
		}
	}
	for name, why := range refused {
		f.Var(refusedValue(why), name, why)
		f.Lookup(name).NoOptDefVal = "true" // so that the value of a flag of either type is not taken for an argument
		_ = f.MarkHidden(name)
	}
}

// Set sets the flags of serve. It returns an error for what serve cannot do, and makes the certificate in --cert-dir.
func (o *Flags) Set(serve *pflag.FlagSet) error {
	if o.port < 1 || o.port > 65535 {
		return fmt.Errorf("--secure-port %d: want a port from 1 to 65535", o.port)
	}
	if err := checkModes(o.modes); err != nil {
		return err
	}
	if err := checkPlugins(o.enabled, o.disabled); err != nil {
		return err
	}
	set := setter{flags: serve}
	set.to("listen", net.JoinHostPort(o.bind.String(), strconv.Itoa(o.port)))
	if len(o.etcd) > 0 {
		set.to("etcd-endpoints", strings.Join(o.etcd, ","))
	}
	if o.hostname != "" {
		set.to("host", o.hostname)
	}
	o.setDefaults(&set)
	if o.own.Changed("v") {
		level := "info"
		if o.verbosity >= 4 {
			level = "debug"
		}
		set.to("log-level", level)
	}
	if o.own.Changed("logging-format") {
		set.to("log-format", o.logFormat)
	}
	if o.own.Changed("max-requests-inflight") || o.own.Changed("max-mutating-requests-inflight") {
		if o.requests < 1 || o.mutations < 1 {
			return fmt.Errorf("--max-requests-inflight %d and --max-mutating-requests-inflight %d: want numbers greater than 0; stele always limits requests", o.requests, o.mutations)
		}
		set.to("max-seats", strconv.Itoa(o.requests+o.mutations))
	}
	if o.certDir != "" && !serve.Changed("tls-cert-file") {
		cert, key, err := certificate(o.certDir, o.bind, o.hostname, serve)
		if err != nil {
			return fmt.Errorf("--cert-dir: %w", err)
		}
		set.to("tls-cert-file", cert)
		set.to("tls-private-key-file", key)
	}
	return set.err
}

// setDefaults sets the flags that have other defaults in kube-apiserver.
func (o *Flags) setDefaults(set *setter) {
	folder := dataDir
	if o.certDir != "" {
		folder = filepath.Join(o.certDir, "stele")
	}
	set.unlessGiven("data-dir", folder)
	set.unlessGiven("profiling", "true")
	if !set.flags.Changed("authentication-config") { // which says it, too
		set.unlessGiven("anonymous-auth", "true")
	}
}

// Ignored returns the flags on the command line that have no effect.
func (o *Flags) Ignored() []string {
	var names []string
	o.without.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			names = append(names, "--"+f.Name)
		}
	})
	slices.Sort(names)
	return names
}

// setter sets flags, and keeps the first error.
type setter struct {
	flags *pflag.FlagSet
	err   error
}

func (s *setter) to(name, value string) {
	if err := s.flags.Set(name, value); err != nil && s.err == nil {
		s.err = err
	}
}

func (s *setter) unlessGiven(name, value string) {
	if !s.flags.Changed(name) {
		s.to(name, value)
	}
}
