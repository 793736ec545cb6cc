package tokens

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/projections/objects"
)

const (
	// maxToken limits the length of a token. Tokens that are issued here are shorter.
	maxToken = 32 << 10
	// maxVerified is the number of tokens in the cache.
	maxVerified = 8192
	// leeway allows clocks to differ, and running work to finish while an object is deleted.
	leeway = jwt.DefaultLeeway
)

// These errors are for operators. Clients only see that they are not authenticated.
var (
	errTooLong     = reject(authn.TooLarge, "it has more than %d bytes", maxToken)
	errAlgorithm   = reject(authn.BadSignature, "its signature is of an algorithm that no key here has, or it has none")
	errSignature   = reject(authn.BadSignature, "its signature is not that of a key that is known here")
	errClaims      = reject(authn.Malformed, "it does not say what all of them say")
	errExpired     = reject(authn.Expired, "it has expired")
	errNotYetValid = reject(authn.NotYetValid, "it is not valid yet")
	errAudience    = reject(authn.WrongAudience, "it is for another audience")
)

func reject(reason authn.Reason, format string, args ...any) error {
	return &authn.Rejection{Method: authn.ByServiceAccount, Reason: reason, Err: fmt.Errorf(format, args...)}
}

// verified is a token whose signature is valid.
type verified struct {
	key       string // the ID of the key
	audiences authenticator.Audiences
	notBefore time.Time
	issuedAt  time.Time
	expiry    time.Time
	endless   bool // it does not expire
	user      user.Info
	needs     []*needed
}

// needed is an object that must exist for the token to be valid.
type needed struct {
	schema.GroupResource
	namespace string
	named
	whichever bool                                        // an object with any UID is accepted; the token has no UID
	also      func(o *objects.Object, token string) error // a further check; nil if there is none
	seen      atomic.Pointer[sighting]
}

// sighting caches the state of an object at a revision, because reading it may be slow: a Secret can be large.
type sighting struct {
	revision uint64
	deleted  time.Time // zero if it is not being deleted
	wrong    error     // why the further check failed
}

// AuthenticateToken implements authenticator.Token. It ignores tokens of issuers that are not accepted here.
func (s *ServiceAccounts) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	v, err := s.verify(token)
	if v == nil {
		return nil, false, err
	}
	now := time.Now()
	switch {
	case !v.endless && now.Add(-leeway).After(v.expiry):
		return nil, false, errExpired
	case now.Add(leeway).Before(v.notBefore), now.Add(leeway).Before(v.issuedAt):
		return nil, false, errNotYetValid
	}
	asked, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		asked = s.audiences
	}
	audiences := v.audiences.Intersect(asked)
	if len(audiences) == 0 {
		return nil, false, errAudience
	}
	if err := s.checkNeeds(ctx, v, now, token); err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: v.user, Audiences: audiences}, true, nil
}

// confirmFor is how long a token that seems to be revoked waits for a confirmation.
const confirmFor = 3 * time.Second

// checkNeeds reports an error if an object that the token needs is not as it must be. Another replica may have made it
// a moment ago.
func (s *ServiceAccounts) checkNeeds(ctx context.Context, v *verified, now time.Time, token string) error {
	state := s.objects()
	err := v.check(state, now, token)
	if err == nil || s.confirmed == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, confirmFor)
	defer cancel()
	newer, unconfirmed := s.confirmed(ctx)
	if unconfirmed != nil || newer == state {
		return err
	}
	return v.check(newer, now, token)
}

func (v *verified) check(state *objects.State, now time.Time, token string) error {
	for _, n := range v.needs {
		if err := n.check(state, now, token); err != nil {
			return err
		}
	}
	return nil
}

// check reports an error if the object does not exist, or was deleted longer ago than the leeway.
func (n *needed) check(state *objects.State, now time.Time, token string) error {
	o := state.Get(n.GroupResource, n.namespace, n.Name)
	if o == nil || o.UID != n.UID && !n.whichever {
		return reject(authn.Revoked, "what it depends on is gone: %s %s/%s", n.Resource, n.namespace, n.Name)
	}
	seen := n.seen.Load()
	if seen == nil || seen.revision != o.Revision {
		seen = &sighting{revision: o.Revision}
		if at := gjson.GetBytes(o.JSON, "metadata.deletionTimestamp"); at.Exists() {
			deleted, err := time.Parse(time.RFC3339, at.String())
			if err != nil {
				return err
			}
			seen.deleted = deleted
		}
		if n.also != nil {
			seen.wrong = n.also(o, token)
		}
		n.seen.Store(seen)
	}
	if seen.wrong != nil {
		return seen.wrong
	}
	if !seen.deleted.IsZero() && seen.deleted.Before(now.Add(-leeway)) {
		return reject(authn.Revoked, "what it depends on is being deleted: %s %s/%s", n.Resource, n.namespace, n.Name)
	}
	return nil
}

// verify returns the content of a token if its signature is valid. It returns nil without an error if the issuer is
// not accepted here.
func (s *ServiceAccounts) verify(token string) (*verified, error) {
	if strings.Count(token, ".") != 2 {
		return nil, nil
	}
	if len(token) > maxToken {
		return nil, s.unreadable(token, errTooLong)
	}
	r := s.keys.ring.Load()
	hash := s.hashes.sum(token)
	if v, ok := s.verified.Get(hash); ok {
		if r.byID[v.key] != nil {
			return v, nil
		}
		s.verified.Remove(hash)
	}
	parsed, err := jwt.ParseSigned(token, algorithms)
	if wrong := (*jose.ErrUnexpectedSignatureAlgorithm)(nil); errors.As(err, &wrong) {
		return nil, s.unreadable(token, errAlgorithm)
	}
	var says claims
	if err == nil {
		err = parsed.UnsafeClaimsWithoutVerification(&says)
	}
	if err != nil {
		return nil, s.unreadable(token, errClaims)
	}
	bound := slices.Contains(s.issuers, says.Issuer)
	if !bound && says.Issuer != LegacyIssuer {
		return nil, nil
	}
	for _, k := range r.candidates(parsed.Headers[0]) {
		says = claims{}
		if err := parsed.Claims(k.public, &says); err != nil {
			continue
		}
		v, err := s.checkClaims(parsed, &says, bound, k.id)
		if err != nil {
			return nil, err
		}
		if v.endless || time.Now().Before(v.expiry.Add(leeway)) {
			s.verified.Add(hash, v, 1)
		}
		return v, nil
	}
	return nil, errSignature
}

// unreadable returns an error for a token that cannot be parsed, or nil if the token does not even claim to be from
// here.
func (s *ServiceAccounts) unreadable(token string, wrong error) error {
	if issuer := authn.IssuerOf(token); issuer == LegacyIssuer || slices.Contains(s.issuers, issuer) {
		return wrong
	}
	return nil
}

// checkClaims checks what depends on the token alone, not on stored objects. A client requested the token, or it is from a
// Secret. Both may have LegacyIssuer as their issuer.
func (s *ServiceAccounts) checkClaims(token *jwt.JSONWebToken, says *claims, bound bool, key string) (*verified, error) {
	if bound && (says.Issuer != LegacyIssuer || says.Kubernetes.Namespace != "") {
		return says.verified(key)
	}
	var legacy legacyClaims
	if err := token.UnsafeClaimsWithoutVerification(&legacy); err != nil {
		return nil, errClaims
	}
	return legacy.verified(key, s.audiences)
}

// verified checks the claims, without stored objects, and returns them as a verified token.
func (c *claims) verified(key string) (*verified, error) {
	k := &c.Kubernetes
	if len(c.Audience) == 0 || c.Expiry == nil || c.NotBefore == nil || c.IssuedAt == nil || k.Namespace == "" || k.ServiceAccount.Name == "" || k.ServiceAccount.UID == "" {
		return nil, errClaims
	}
	v := &verified{key: key, audiences: authenticator.Audiences(c.Audience), notBefore: c.NotBefore.Time(), issuedAt: c.IssuedAt.Time(), expiry: c.Expiry.Time()}
	is := serviceaccount.ServiceAccountInfo{
		Namespace: k.Namespace, Name: k.ServiceAccount.Name, UID: k.ServiceAccount.UID, CredentialID: tokenjwt.CredentialIDForJTI(c.ID),
	}
	v.need(serviceAccounts, k.Namespace, &k.ServiceAccount)
	v.need(secrets, k.Namespace, k.Secret)
	if v.need(pods, k.Namespace, k.Pod) {
		is.PodName, is.PodUID = k.Pod.Name, k.Pod.UID
	} else {
		v.need(nodes, "", k.Node) // for a Pod, its node is only informative
	}
	if k.Node != nil {
		is.NodeName, is.NodeUID = k.Node.Name, k.Node.UID
	}
	v.user = is.UserInfo()
	return v, nil
}

func (v *verified) need(r schema.GroupResource, namespace string, n *named) bool {
	if n == nil {
		return false
	}
	v.needs = append(v.needs, &needed{GroupResource: r, namespace: namespace, named: *n})
	return true
}

// hashes computes keyed hashes of tokens, which nobody outside of this process can compute.
type hashes struct{ pool sync.Pool }

type tokenHash [sha256.Size]byte

// hasher is reused, so that hashing a token makes no copy of it.
type hasher struct {
	mac   hash.Hash
	token []byte
	sum   []byte
}

func newHashes() *hashes {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // it never fails
	return &hashes{pool: sync.Pool{New: func() any { return &hasher{mac: hmac.New(sha256.New, secret)} }}}
}

func (h *hashes) sum(token string) tokenHash {
	w := h.pool.Get().(*hasher)
	defer h.pool.Put(w)
	w.mac.Reset()
	w.token = append(w.token[:0], token...)
	w.mac.Write(w.token)
	clear(w.token)
	w.sum = w.mac.Sum(w.sum[:0])
	return tokenHash(w.sum)
}
