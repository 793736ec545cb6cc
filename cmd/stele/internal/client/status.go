package client

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
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/resources/access"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/changes"
	"stele.dev/stele/core/resources/delivery"
	"stele.dev/stele/core/resources/replicas"
	"stele.dev/stele/core/run/plane/datadir"
)

// Status is the state of a control plane, as a document.
type Status struct {
	APIVersion   string            `json:"apiVersion"`
	Kind         string            `json:"kind"`
	Server       string            `json:"server"`
	Version      string            `json:"version"`
	Revision     uint64            `json:"revision,omitempty"`
	Policy       *policyStatus     `json:"policy,omitempty"`
	Source       *PolicySource     `json:"policySource,omitempty"`
	Kinds        []kindCount       `json:"kinds,omitempty"`
	Ready        bool              `json:"ready"`
	Checks       []ReadyCheck      `json:"checks,omitempty"`
	Certificates []certificateEnd  `json:"certificates,omitempty"`
	Disk         *diskStatus       `json:"disk,omitempty"`
	Replicas     []ReplicaStatus   `json:"replicas,omitempty"`
	Unknown      map[string]string `json:"unknown,omitempty"` // what could not be found out, and why
}

// policyStatus is the policy in force.
type policyStatus struct {
	Digest   string     `json:"digest"`
	Cluster  string     `json:"cluster,omitempty"`
	Commit   string     `json:"commit,omitempty"`
	Revision uint64     `json:"revision"`
	Since    *time.Time `json:"since,omitempty"`
	Actor    string     `json:"actor,omitempty"`
}

// PolicySource is the source from which the server takes its policy.
type PolicySource = delivery.PolicySourceStatus

// source reads the source of the policy, if the server has one.
func (s *Status) source(ctx context.Context, m *moments) error {
	_, text, err := m.get(ctx, "", "apis/"+activation.Group+"/"+activation.Version+"/"+delivery.Plural)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var list struct{ Items []delivery.PolicySource }
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	if len(list.Items) > 0 {
		s.Source = &list.Items[0].Status
	}
	return nil
}

// kindCount is the number of objects of a kind.
type kindCount struct {
	Resource string `json:"resource"` // with its group
	Count    int64  `json:"count"`
}

// ReadyCheck is the result of a check of /readyz. The server can be ready although a check failed.
type ReadyCheck struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Warns is true for a check that fails while the server stays ready.
	Warns bool `json:"warns,omitempty"`
}

// certificateEnd is when a certificate expires.
type certificateEnd struct {
	Name string    `json:"name"`
	Ends time.Time `json:"ends"`
}

// diskStatus is the size of the data directory and the free space on its disk.
type diskStatus struct {
	Bytes uint64 `json:"bytes"`
	Free  uint64 `json:"freeBytes"`
}

// ReplicaStatus is a server of the same log.
type ReplicaStatus struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	Build   string `json:"build,omitempty"`
	Lag     uint64 `json:"lag"`
	Live    bool   `json:"live"`
	Leader  bool   `json:"leader"`
	Keys    string `json:"keys"`
	Self    bool   `json:"self"`
}

// replicas reads the replicas of the log.
func (s *Status) replicas(ctx context.Context, m *moments) error {
	_, text, err := m.get(ctx, "", "apis/"+replicas.Group+"/"+replicas.Version+"/"+replicas.Plural)
	if apierrors.IsNotFound(err) {
		return nil // an older server
	}
	if err != nil {
		return err
	}
	var list struct{ Items []replicas.ReplicaObject }
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for _, x := range list.Items {
		s.Replicas = append(s.Replicas, ReplicaStatus{
			Name: x.Name, Address: x.Status.Address, Build: x.Status.Build, Lag: x.Status.Lag, Live: x.Status.Live, Leader: x.Status.Leader, Keys: x.Status.Keys.Same, Self: x.Status.Self,
		})
	}
	return nil
}

// ReadStatus reads the state of a control plane. It returns an error only if the server does not answer; parts that
// cannot be read are named in Unknown.
func ReadStatus(ctx context.Context, o *Flags, config *rest.Config) (*Status, error) {
	s := &Status{APIVersion: DocumentVersion, Kind: "Status", Server: strings.TrimSuffix(config.Host, "/"), Unknown: map[string]string{}}
	m, err := NewMoments(config)
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
		{"source", func() error { return s.source(ctx, m) }},
		{"kinds", func() error { return s.count(ctx, config) }},
		{"checks", func() error { return s.readiness(ctx, config) }},
		{"certificates", func() error { return s.certificates(config) }},
		{"disk", func() error { return s.disk(ctx, config) }},
		{"replicas", func() error { return s.replicas(ctx, m) }},
	} {
		if err := part.look(); err != nil {
			s.Unknown[part.name] = err.Error()
		}
	}
	return s, ctx.Err()
}

// policy reads the policy in force, and when it was activated.
func (s *Status) policy(ctx context.Context, o *Flags, config *rest.Config) error {
	client, err := NewPolicies(o, rest.NoWarnings{})
	if err != nil {
		return err
	}
	p, err := client.InForce(ctx)
	if err != nil {
		return err
	}
	s.Policy = &policyStatus{Digest: p.Name, Cluster: p.Status.Cluster, Commit: p.Spec.Commit, Revision: p.Status.Revision, Actor: p.Status.Actor}
	log, err := NewChanges(config)
	if err != nil {
		return err
	}
	if c, err := log.Get(ctx, "", p.Status.Revision); err == nil { // else the user may not list changes
		if at, err := time.Parse(time.RFC3339Nano, c.Time); err == nil {
			s.Policy.Since = &at
		}
	}
	return nil
}

// countAtOnce limits how many kinds are counted at the same time.
const countAtOnce = 8

// count counts the objects of each kind that can be listed.
func (s *Status) count(ctx context.Context, config *rest.Config) error {
	kinds, err := ListableKinds(config)
	if err != nil {
		return err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	var all []schema.GroupVersionResource
	for _, k := range kinds {
		if k.Group != changes.Group && k.Group != access.Group {
			all = append(all, k.GVR())
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

// readiness reads the checks of /readyz, also if one of them fails.
func (s *Status) readiness(ctx context.Context, config *rest.Config) error {
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
		if mark == "[+" || mark == "[-" || mark == "[!" {
			s.Checks = append(s.Checks, ReadyCheck{name, mark == "[+", mark == "[!"})
		}
	}
	if len(s.Checks) > 0 {
		return nil
	}
	return err
}

// certificates reads when the certificates of the user, of the server and of the authority expire.
func (s *Status) certificates(config *rest.Config) error {
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

// disk reads the size of the server's data from its metrics.
func (s *Status) disk(ctx context.Context, config *rest.Config) error {
	values, err := ReadMetrics(ctx, config)
	if err != nil {
		return err
	}
	s.Disk = &diskStatus{Bytes: uint64(values[datadir.BytesMetric]), Free: uint64(values[datadir.FreeBytesMetric])}
	return nil
}

// ReadMetrics reads the gauges and counters of a server, by name. The values of a metric with labels are added up.
func ReadMetrics(ctx context.Context, config *rest.Config) (map[string]float64, error) {
	text, err := Read(ctx, config, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			values[name] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values, nil
}
