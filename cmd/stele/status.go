package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/access"
	"stele.dev/stele/core/changes"
	"stele.dev/stele/core/plane/datadir"
)

type statusOptions struct {
	clientOptions
	outputOptions
}

func statusCommand() *cobra.Command {
	o := &statusOptions{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a control plane: version, policy, kinds with counts, health, certificates, disk",
		Long: `Status asks the control plane what it is, and how it is: its address, version and revision; the
policy in force, since when, and of which commit; how many objects there are of each kind; the
checks of /readyz; when certificates end; and the size of its data. What the user may not read is
named.

It exits with 1 if a check of /readyz fails.`,
		Example: `  stele status
  stele status -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.clientOptions.addFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	o.addIdentity(cmd)
	o.outputOptions.addFlags(cmd, "wide", "json", "yaml")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

// statusDocument is what status found, for programs.
type statusDocument struct {
	APIVersion   string            `json:"apiVersion"`
	Kind         string            `json:"kind"`
	Server       string            `json:"server"`
	Version      string            `json:"version"`
	Revision     uint64            `json:"revision,omitempty"`
	Policy       *policyStatus     `json:"policy,omitempty"`
	Kinds        []kindCount       `json:"kinds,omitempty"`
	Ready        bool              `json:"ready"`
	Checks       []readyCheck      `json:"checks,omitempty"`
	Certificates []certificateEnd  `json:"certificates,omitempty"`
	Disk         *diskStatus       `json:"disk,omitempty"`
	Unknown      map[string]string `json:"unknown,omitempty"` // what could not be found out, and why
}

type policyStatus struct {
	Digest   string     `json:"digest"`
	Cluster  string     `json:"cluster,omitempty"`
	Commit   string     `json:"commit,omitempty"`
	Revision uint64     `json:"revision"`
	Since    *time.Time `json:"since,omitempty"`
	Actor    string     `json:"actor,omitempty"`
}

type kindCount struct {
	Resource string `json:"resource"` // with its group
	Count    int64  `json:"count"`
}

type readyCheck struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
}

type certificateEnd struct {
	Name string    `json:"name"`
	Ends time.Time `json:"ends"`
}

type diskStatus struct {
	Bytes uint64 `json:"bytes"`
	Free  uint64 `json:"freeBytes"`
}

func (o *statusOptions) run(cmd *cobra.Command) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.check(); err != nil {
		return err
	}
	config, _, err := o.config()
	if err != nil {
		return err
	}
	s, err := o.look(ctx, config)
	if err != nil {
		return err
	}
	out, err := o.open(cmd, false)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	if o.format != "" {
		err = out.document(o.format, s)
	} else {
		err = s.show(out, o.wide)
	}
	if err == nil && !s.Ready {
		return exitError{exitFailure, errSaid}
	}
	return err
}

// look asks the server for all of it. That it does not answer at all is an error.
func (o *statusOptions) look(ctx context.Context, config *rest.Config) (*statusDocument, error) {
	s := &statusDocument{APIVersion: clientVersion, Kind: "Status", Server: strings.TrimSuffix(config.Host, "/"), Unknown: map[string]string{}}
	m, err := newMoments(config)
	if err != nil {
		return nil, err
	}
	_, text, err := m.get(ctx, "", "version")
	if err != nil {
		return nil, err
	}
	var v version.Info
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("%s: /version: %w", s.Server, err)
	}
	s.Version = v.GitVersion
	for _, part := range []struct {
		name string
		look func() error
	}{
		{"revision", func() (err error) { s.Revision, err = m.newest(ctx); return err }},
		{"policy", func() error { return s.policy(ctx, o, config) }},
		{"kinds", func() error { return s.count(ctx, config) }},
		{"checks", func() error { return s.readiness(ctx, config) }},
		{"certificates", func() error { return s.certificates(config) }},
		{"disk", func() error { return s.disk(ctx, m) }},
	} {
		if err := part.look(); err != nil {
			s.Unknown[part.name] = err.Error()
		}
	}
	return s, ctx.Err()
}

// policy reads the policy in force, and when it was activated.
func (s *statusDocument) policy(ctx context.Context, o *statusOptions, config *rest.Config) error {
	client, err := newPolicyClient(&o.clientOptions, rest.NoWarnings{})
	if err != nil {
		return err
	}
	p, err := client.inForce(ctx)
	if err != nil {
		return err
	}
	s.Policy = &policyStatus{Digest: p.Name, Cluster: p.Status.Cluster, Commit: p.Spec.Commit, Revision: p.Status.Revision, Actor: p.Status.Actor}
	log, err := newChangesClient(config)
	if err != nil {
		return err
	}
	if c, err := log.get(ctx, "", p.Status.Revision); err == nil { // else the user may not list changes
		if at, err := time.Parse(time.RFC3339Nano, c.Time); err == nil {
			s.Policy.Since = &at
		}
	}
	return nil
}

// countAtOnce bounds how many kinds are counted together.
const countAtOnce = 8

// count counts the objects of each kind that can be listed.
func (s *statusDocument) count(ctx context.Context, config *rest.Config) error {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	lists, err := d.ServerPreferredResources()
	if err != nil && len(lists) == 0 {
		return err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	var all []schema.GroupVersionResource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || gv.Group == changes.Group || gv.Group == access.Group {
			continue
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && !strings.Contains(r.Name, "/") {
				all = append(all, gv.WithResource(r.Name))
			}
		}
	}
	counts := make([]int64, len(all))
	errs := make([]error, len(all))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(countAtOnce)
	for i, r := range all {
		group.Go(func() error {
			list, err := client.Resource(r).List(ctx, metav1.ListOptions{Limit: 1})
			if errs[i] = err; err == nil {
				counts[i] = int64(len(list.Items))
				if more := list.GetRemainingItemCount(); more != nil {
					counts[i] += *more
				}
			}
			return nil
		})
	}
	_ = group.Wait()
	for i, r := range all {
		if errs[i] == nil {
			s.Kinds = append(s.Kinds, kindCount{r.GroupResource().String(), counts[i]})
		}
	}
	slices.SortFunc(s.Kinds, func(a, b kindCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Resource, b.Resource))
	})
	return errors.Join(errs...)
}

// readiness reads the checks of /readyz, which are there also if one fails.
func (s *statusDocument) readiness(ctx context.Context, config *rest.Config) error {
	c := rest.CopyConfig(config)
	c.GroupVersion, c.NegotiatedSerializer = &schema.GroupVersion{}, rawSerializer
	client, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		return err
	}
	text, err := client.Get().AbsPath("/readyz").Param("verbose", "true").SetHeader("Accept", "text/plain").DoRaw(ctx)
	s.Ready = err == nil
	for line := range strings.Lines(string(text)) {
		mark, rest, _ := strings.Cut(strings.TrimSpace(line), "]")
		name, _, _ := strings.Cut(rest, " ")
		if mark == "[+" || mark == "[-" {
			s.Checks = append(s.Checks, readyCheck{name, mark == "[+"})
		}
	}
	if len(s.Checks) > 0 {
		return nil
	}
	return err
}

// certificates finds out when those end that the user and the server show, and the authority's.
func (s *statusDocument) certificates(config *rest.Config) error {
	settings, err := rest.TLSConfigFor(config)
	if err != nil || settings == nil {
		return err
	}
	add := func(name string, of *x509.Certificate) {
		s.Certificates = append(s.Certificates, certificateEnd{name, of.NotAfter})
	}
	if settings.GetClientCertificate != nil {
		if pair, err := settings.GetClientCertificate(&tls.CertificateRequestInfo{}); err == nil && len(pair.Certificate) > 0 {
			if c, err := x509.ParseCertificate(pair.Certificate[0]); err == nil {
				add("client "+c.Subject.CommonName, c)
			}
		}
	}
	address, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	conn, err := tls.Dial("tcp", address.Host, settings)
	if err != nil {
		return err
	}
	defer conn.Close()
	if peers := conn.ConnectionState().PeerCertificates; len(peers) > 0 {
		add("server", peers[0])
	}
	if block, _ := pem.Decode(config.CAData); block != nil {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			add("authority", c)
		}
	}
	return nil
}

// disk reads the size of the server's data, which is in its metrics.
func (s *statusDocument) disk(ctx context.Context, m *moments) error {
	_, text, err := m.get(ctx, "", "metrics")
	if err != nil {
		return err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return err
	}
	value := func(name string) uint64 {
		if f := families[name]; f != nil && len(f.GetMetric()) > 0 {
			return uint64(f.GetMetric()[0].GetGauge().GetValue())
		}
		return 0
	}
	s.Disk = &diskStatus{Bytes: value(datadir.BytesMetric), Free: value(datadir.FreeBytesMetric)}
	return nil
}

// show prints it for people.
func (s *statusDocument) show(out *output, wide bool) error {
	c := &columns{out: out}
	line := func(name, format string, args ...any) {
		c.add("", cell{text: name, style: bold}, cell{text: fmt.Sprintf(format, args...)})
	}
	line("Server", "%s", s.Server)
	line("Version", "%s", s.Version)
	if s.Revision > 0 {
		line("Revision", "%d", s.Revision)
	}
	if p := s.Policy; p != nil {
		since := ""
		if p.Since != nil {
			since = ", " + out.time(*p.Since)
		}
		line("Policy", "%.12s%s, since revision %d%s, by %s", p.Digest, ofCommit(p.Commit), p.Revision, since, p.Actor)
		line("Cluster", "%s", p.Cluster)
	}
	s.showHealth(line)
	for _, x := range s.Certificates {
		line("Certificate", "%s ends %s", x.Name, out.time(x.Ends))
	}
	if s.Disk != nil {
		line("Disk", "%s used, %s free", bytesText(s.Disk.Bytes), bytesText(s.Disk.Free))
	}
	empty := 0
	for i, k := range s.Kinds {
		if k.Count == 0 && !wide {
			empty = len(s.Kinds) - i
			break
		}
		line("Objects", "%d %s", k.Count, k.Resource)
	}
	if empty > 0 {
		line("", "none of %s", counted(empty, "other kind"))
	}
	for _, name := range []string{"revision", "policy", "kinds", "checks", "certificates", "disk"} {
		if why := s.Unknown[name]; why != "" {
			line("Unknown", "%s: %s", name, strings.ReplaceAll(why, "\n", "; "))
		}
	}
	for i := len(c.rows) - 1; i > 0; i-- { // each name once
		if c.rows[i].cells[0].text == c.rows[i-1].cells[0].text {
			c.rows[i].cells[0].text = ""
		}
	}
	return c.flush()
}

// showHealth prints the checks of /readyz: those that fail, or how many there are.
func (s *statusDocument) showHealth(line func(string, string, ...any)) {
	var failed []string
	for _, x := range s.Checks {
		if !x.OK {
			failed = append(failed, x.Name)
		}
	}
	switch {
	case s.Ready:
		line("Ready", "yes, %s", counted(len(s.Checks), "check"))
	case len(failed) > 0:
		line("Ready", "no: %s", strings.Join(failed, ", "))
	default:
		line("Ready", "no")
	}
}

// bytesText is a number of bytes in the unit that people read.
func bytesText(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
