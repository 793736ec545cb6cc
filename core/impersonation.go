package core

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/authn"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
)

// impersonation pins the tip, unless the request was sent back with a newer one, and sets the user to the one in the
// impersonation headers. The tip's policy must allow each of the user, groups, uid and extra. The rules are those of
// k8s.io/apiserver, but the user's size is bounded as in authentication.
func (p *Pipeline) impersonation(ctx context.Context, r *Request) error {
	if r.Tip == nil {
		r.Tip = p.committer.Tip()
		r.Confirmed = p.committer.Unconfirmed() == 0
	}
	if !r.Mode.Is(call.Replayed) {
		r.ClassifyAudit(&p.audits)
		p.prepareRecord(r)
	}
	r.User = r.Requester
	if r.Tip.Policy == nil || !impersonates(r.HTTP.Header) {
		return nil
	}
	var as user.Info
	filter := impersonation.WithImpersonation(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		as, _ = request.UserFrom(q.Context())
	}), r.Tip.Policy.Authorizer(), statusCodecs)
	q := r.HTTP.Clone(request.WithUser(ctx, r.Requester)) // a copy: the next round needs the headers, too
	q.Header.Del("Accept")                                // the Status is decoded below, as JSON
	var refusal refusal
	filter.ServeHTTP(&refusal, q)
	if as == nil {
		return refusal.error()
	}
	if err := authn.Bounded(as); err != nil {
		return status.BadRequest(err.Error())
	}
	r.User = as
	return nil
}

func impersonates(h http.Header) bool {
	for name := range h {
		if name == authenticationv1.ImpersonateUserHeader || name == authenticationv1.ImpersonateGroupHeader ||
			name == authenticationv1.ImpersonateUIDHeader || strings.HasPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix) {
			return true
		}
	}
	return false
}

var statusCodecs = func() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	scheme.AddUnversionedTypes(metav1.Unversioned, &metav1.Status{})
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}()

// refusal is a ResponseWriter that keeps the Status of a refused impersonation.
type refusal struct {
	header http.Header
	body   bytes.Buffer
}

func (r *refusal) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

func (r *refusal) WriteHeader(int)                {}
func (r *refusal) Write(text []byte) (int, error) { return r.body.Write(text) }

func (r *refusal) error() error {
	err := &status.Error{}
	if jsonErr := json.Unmarshal(r.body.Bytes(), &err.ErrStatus); jsonErr != nil {
		return jsonErr
	}
	return err
}
