// Package clientca tells other API servers which certificate authorities and front proxies this one trusts, so that they
// can authenticate users in the same way. It writes the ConfigMap extension-apiserver-authentication in kube-system,
// where they look for it. Its content is public: certificates of authorities, and names.
//
// As in Kubernetes, the ConfigMap contains what all replicas trust, and what they trusted before until that expires.
// So servers that do not know a new authority yet keep working with the old one.
package clientca

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/util/cert"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/loopback"
	"stele.dev/stele/core/run/controllers/clients"
	"stele.dev/stele/limits/steady"
)

// Namespace and Name are those of the ConfigMap.
const (
	Namespace = metav1.NamespaceSystem
	Name      = "extension-apiserver-authentication"
)

// These are the keys of the ConfigMap.
const (
	clientCA        = "client-ca-file"
	proxyCA         = "requestheader-client-ca-file"
	allowedNames    = "requestheader-allowed-names"
	usernameHeaders = "requestheader-username-headers"
	uidHeaders      = "requestheader-uid-headers"
	groupHeaders    = "requestheader-group-headers"
	extraPrefixes   = "requestheader-extra-headers-prefix"
)

// Options are the options of [New].
type Options struct {
	// API serves the requests of the publisher, which is system:apiserver as in Kubernetes.
	API http.Handler
	// ClientCA returns the current authorities of client certificates.
	ClientCA func() []*x509.Certificate
	// FrontProxy may be nil.
	FrontProxy *authn.FrontProxy
	Logger     *slog.Logger // may be nil
}

// Publisher keeps the ConfigMap current. Run is for one goroutine.
type Publisher struct {
	options Options
	maps    *gentype.Client[*corev1.ConfigMap]
	set     *clients.Set
	queue   clients.Queue[string]
}

// New returns a publisher.
func New(o Options) (*Publisher, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	config := loopback.Config(o.API, &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}})
	maps, err := loopback.Typed(config, corev1.SchemeGroupVersion.WithResource("configmaps"), Namespace, func() *corev1.ConfigMap { return new(corev1.ConfigMap) })
	if err != nil {
		return nil, err
	}
	set, err := clients.New(config, o.Logger)
	if err != nil {
		return nil, err
	}
	return &Publisher{options: o, maps: maps, set: set, queue: clients.NewQueue[string]("client_ca")}, nil
}

// lookEvery is how often the authorities are checked for changes.
const lookEvery = time.Second

// Run writes the ConfigMap when the authorities change, or when somebody else changes or deletes it, until the context
// ends. It logs failures and tries again.
func (p *Publisher) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() {
		p.set.Follow(ctx, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "metadata.name="+Name+",metadata.namespace="+Namespace, follower{p})
	})
	running.Go(func() { p.look(ctx) })
	p.queue.Work(ctx, 1, p.options.Logger, func(ctx context.Context, _ string) error { return p.Publish(ctx) })
	running.Wait()
	return ctx.Err()
}

func (p *Publisher) look(ctx context.Context) {
	last := p.trusted()
	p.queue.Add(Name)
	for range steady.Every(ctx, lookEvery) {
		if now := p.trusted(); !maps.Equal(now, last) {
			last = now
			p.queue.Add(Name)
		}
	}
}

// follower receives changes of the ConfigMap by others.
type follower struct{ *Publisher }

func (f follower) Replace([]*metav1.PartialObjectMetadata) { f.queue.Add(Name) }
func (f follower) Changed(*metav1.PartialObjectMetadata)   { f.queue.Add(Name) }
func (f follower) Gone(*metav1.PartialObjectMetadata)      { f.queue.Add(Name) }

// Publish writes the ConfigMap if it is not current. A concurrent write by others is a conflict.
func (p *Publisher) Publish(ctx context.Context) error {
	there, err := p.maps.Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = p.maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name}, Data: p.trusted()}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	data := union(there.Data, p.trusted(), time.Now())
	if maps.Equal(data, there.Data) {
		return nil
	}
	there.Data = data
	_, err = p.maps.Update(ctx, there, metav1.UpdateOptions{})
	if apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsInvalid(err) {
		there.Data = p.trusted() // the old content has grown too large
		_, err = p.maps.Update(ctx, there, metav1.UpdateOptions{})
	}
	return err
}

// trusted returns what this replica trusts.
func (p *Publisher) trusted() map[string]string {
	data := map[string]string{}
	if authorities := encode(p.options.ClientCA()); authorities != "" {
		data[clientCA] = authorities
	}
	if p.options.FrontProxy == nil {
		return data
	}
	o := p.options.FrontProxy.Options()
	data[proxyCA] = encode(p.options.FrontProxy.Certificates())
	for key, list := range map[string][]string{
		allowedNames: o.AllowedNames, usernameHeaders: o.UsernameHeaders, groupHeaders: o.GroupHeaders, extraPrefixes: o.ExtraHeaderPrefixes, uidHeaders: o.UIDHeaders,
	} {
		if len(list) > 0 || key != uidHeaders { // uidHeaders is newer; omit it for old servers if it is empty
			data[key] = list2text(list)
		}
	}
	return data
}

// union adds what this replica trusts to what is published. It drops published content that cannot be parsed, because
// nobody can use it.
func union(there, own map[string]string, now time.Time) map[string]string {
	data := map[string]string{}
	for _, key := range []string{clientCA, proxyCA} {
		if text := encode(valid(slices.Concat(parse(there[key]), parse(own[key])), now)); text != "" {
			data[key] = text
		}
	}
	if data[proxyCA] == "" {
		return data
	}
	for _, key := range []string{allowedNames, usernameHeaders, uidHeaders, groupHeaders, extraPrefixes} {
		if list := unique(slices.Concat(text2list(there[key]), text2list(own[key]))); len(list) > 0 || key != uidHeaders {
			data[key] = list2text(list)
		}
	}
	return data
}

// slack is how long an expired certificate is kept, for clocks that are behind, as in Kubernetes.
const slack = 5 * time.Minute

// valid returns the certificates that have not expired, each once.
func valid(certificates []*x509.Certificate, now time.Time) (list []*x509.Certificate) {
	for _, c := range certificates {
		if c.NotAfter.Add(slack).After(now) && !slices.ContainsFunc(list, c.Equal) {
			list = append(list, c)
		}
	}
	return list
}

func parse(text string) []*x509.Certificate {
	certificates, err := cert.ParseCertsPEM([]byte(text))
	if err != nil {
		return nil
	}
	return certificates
}

func encode(certificates []*x509.Certificate) string {
	var text bytes.Buffer
	for _, c := range certificates {
		_ = pem.Encode(&text, &pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})
	}
	return text.String()
}

func unique(list []string) (each []string) {
	for _, x := range list {
		if !slices.Contains(each, x) {
			each = append(each, x)
		}
	}
	return each
}

func list2text(list []string) string {
	text, _ := json.Marshal(append([]string{}, list...)) // strings always encode
	return string(text)
}

func text2list(text string) (list []string) {
	if json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	return list
}
