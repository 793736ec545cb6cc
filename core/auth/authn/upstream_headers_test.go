package authn_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/auth/authn"
)

// randomHeaders returns headers of which some are among the names, with values that matter to someone who reads users.
// At most one has a name that begins with each prefix, because the order of more is random upstream.
func randomHeaders(random *rand.Rand, names, prefixes []string) http.Header {
	values := []string{"", "alice", "system:anonymous", "system:authenticated", "system:unauthenticated", "system:masters", "system:serviceaccount:a:b", "system:serviceaccount:a:", "ünï", "a b"}
	h := http.Header{}
	add := func(name string) {
		if random.IntN(8) > 0 {
			name = http.CanonicalHeaderKey(name)
		}
		for range 1 + random.IntN(2) {
			h[name] = append(h[name], values[random.IntN(len(values))])
		}
	}
	for _, name := range names {
		if random.IntN(2) == 0 {
			add(name)
		}
	}
	for _, prefix := range prefixes {
		if keys := []string{"", "scopes", "Example.com%2fScope", "bad%2", "x_y"}; random.IntN(2) == 0 {
			add(prefix + keys[random.IntN(len(keys))])
		}
	}
	return h
}

func TestHeadersOfProxiesAreReadAsUpstream(t *testing.T) {
	ca := newSigner(t, "proxies")
	certificate := ca.issue(t, "front-proxy", nil)
	o := frontProxies(t, ca)
	o.UsernameHeaders = append(o.UsernameHeaders, "x-company-user")
	o.UIDHeaders = append(o.UIDHeaders, "X-Company-Uid")
	o.GroupHeaders = append(o.GroupHeaders, "x-company-group")
	o.ExtraHeaderPrefixes = append(o.ExtraHeaderPrefixes, "x-company-extra-")
	p := newFrontProxy(t, o)
	upstream := headerrequest.NewDynamic(
		headerrequest.StaticStringSlice(o.UsernameHeaders), headerrequest.StaticStringSlice(o.UIDHeaders),
		headerrequest.StaticStringSlice(o.GroupHeaders), headerrequest.StaticStringSlice(o.ExtraHeaderPrefixes),
	)
	random := rand.New(rand.NewPCG(1, 2))
	named := 0
	for range 2000 {
		h := randomHeaders(random, slices.Concat(o.UsernameHeaders, o.UIDHeaders, o.GroupHeaders), o.ExtraHeaderPrefixes)
		q := request(certificate)
		q.Header = h
		got, ok, err := p.AuthenticateRequest(q)
		require.NoError(t, err, "%v", h)
		want, wantOK, err := upstream.AuthenticateRequest(&http.Request{Header: h.Clone()})
		require.NoError(t, err)
		require.Equal(t, wantOK, ok, "%v", h)
		if ok {
			named++
			require.Equal(t, want.User, got.User, "%v", h)
		}
	}
	require.Greater(t, named, 500)
}

// byDigits allows and refuses by what is asked, without a pattern, and says why.
type byDigits struct{ salt, allowedOf10 int }

func (a byDigits) Authorize(_ context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	sum := a.salt
	for _, c := range strings.Join([]string{asked.GetAPIGroup(), asked.GetAPIVersion(), asked.GetNamespace(), asked.GetResource(), asked.GetSubresource(), asked.GetName()}, "/") {
		sum = (sum*31 + int(c)) % 1_000_003
	}
	switch {
	case sum%10 < a.allowedOf10 && asked.GetVerb() == "impersonate" && asked.IsResourceRequest() && asked.GetUser().GetName() == "requester":
		return authorizer.DecisionAllow, "", nil
	case sum%2 == 0:
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionDeny, "no <reason>", nil
}

func TestImpersonationIsDecidedAsUpstream(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	scheme.AddUnversionedTypes(metav1.Unversioned, &metav1.Status{})
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	random := rand.New(rand.NewPCG(3, 4))
	requester := &user.DefaultInfo{Name: "requester", Groups: []string{"system:authenticated"}}
	outcomes := map[string]int{}
	for i := range 4000 {
		h := randomHeaders(random, []string{"Impersonate-User", "Impersonate-Uid", "Impersonate-Group"}, []string{"Impersonate-Extra-"})
		authority := byDigits{salt: i, allowedOf10: 7 + i%4}
		var want user.Info
		filter := impersonation.WithImpersonation(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
			want, _ = genericrequest.UserFrom(q.Context())
		}), authority, codecs)
		answer := httptest.NewRecorder()
		q := httptest.NewRequestWithContext(genericrequest.WithUser(t.Context(), requester), http.MethodGet, "/", nil)
		q.Header = h.Clone()
		filter.ServeHTTP(answer, q)

		got, err := authn.Impersonate(t.Context(), requester, h, authority)
		if want != nil {
			outcomes["allowed"]++
			require.NoError(t, err, "%v", h)
			require.True(t, reflect.DeepEqual(want, got), "%v: upstream has %+v, not %+v", h, want, got)
			continue
		}
		var said metav1.Status
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &said))
		said.TypeMeta = metav1.TypeMeta{}
		status, ok := err.(*apierrors.StatusError) //nolint:errorlint // it is the answer
		require.True(t, ok, "%v: %v", h, err)
		require.Equal(t, said, status.ErrStatus, "%v", h)
		outcomes[string(said.Reason)]++
	}
	for _, outcome := range []string{"allowed", "Forbidden", "BadRequest"} {
		require.Greater(t, outcomes[outcome], 300, "%v", outcomes)
	}
}
