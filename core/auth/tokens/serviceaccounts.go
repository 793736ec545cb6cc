package tokens

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"stele.dev/stele/limits/lru"
	"stele.dev/stele/projections/objects"
)

// DefaultIssuer is the issuer of tokens if none is configured: the name of a Kubernetes API within its cluster.
const DefaultIssuer = "https://kubernetes.default.svc"

// Options for [New].
type Options struct {
	Keys *Keys
	// Issuers are the accepted issuers, at least one. The first one issues new tokens.
	Issuers []string
	// Audiences are the names of this API; nil means the issuers.
	Audiences []string
	// MaxExpiration limits the lifetime of new tokens; 0 means no limit.
	MaxExpiration time.Duration
	// JWKSURI is the URL at which others get the keys.
	JWKSURI string
	// Objects returns the objects at the tip.
	Objects func() *objects.State
	// Confirmed returns the objects at a tip that was the log's after the call. A token whose account or other object
	// is missing is not refused before these lack it, too. If it is nil, Objects are always up to date.
	Confirmed func(context.Context) (*objects.State, error)
}

// ServiceAccounts issues and verifies the tokens of service accounts. It implements
// authenticator.Token, and is safe for concurrent use.
type ServiceAccounts struct {
	keys          *Keys
	issuers       []string
	audiences     authenticator.Audiences
	maxExpiration time.Duration
	jwksURI       string
	objects       func() *objects.State
	confirmed     func(context.Context) (*objects.State, error)
	verified      *lru.Cache[tokenHash, *verified]
	hashes        *hashes
}

// New returns a ServiceAccounts with the options.
func New(o Options) (*ServiceAccounts, error) {
	if err := CheckIssuers(o.Issuers); err != nil {
		return nil, err
	}
	s := &ServiceAccounts{
		keys: o.Keys, issuers: o.Issuers, audiences: o.Audiences, maxExpiration: o.MaxExpiration, jwksURI: o.JWKSURI, objects: o.Objects, confirmed: o.Confirmed,
		verified: lru.New[tokenHash, *verified](maxVerified), hashes: newHashes(),
	}
	if len(s.audiences) == 0 {
		s.audiences = o.Issuers
	}
	return s, nil
}

// CheckIssuers checks issuers as kube-apiserver does.
func CheckIssuers(issuers []string) error {
	if len(issuers) == 0 {
		return errors.New("there is no issuer")
	}
	for i, issuer := range issuers {
		if issuer == "" {
			return errors.New("an issuer is empty")
		}
		if _, err := url.Parse(issuer); strings.Contains(issuer, ":") && err != nil {
			return fmt.Errorf("the issuer %q has a colon and is no URL: %w", issuer, err)
		}
		if slices.Contains(issuers[:i], issuer) {
			return fmt.Errorf("the issuer %q is given twice", issuer)
		}
	}
	return nil
}

// Audiences returns the names of this API.
func (s *ServiceAccounts) Audiences() authenticator.Audiences { return s.audiences }

// claims are the claims of a token, as Kubernetes writes them.
type claims struct {
	Audience   audience         `json:"aud,omitempty"`
	Expiry     *jwt.NumericDate `json:"exp,omitempty"`
	IssuedAt   *jwt.NumericDate `json:"iat,omitempty"`
	Issuer     string           `json:"iss,omitempty"`
	ID         string           `json:"jti,omitempty"`
	Kubernetes kubernetes       `json:"kubernetes.io"`
	NotBefore  *jwt.NumericDate `json:"nbf,omitempty"`
	Subject    string           `json:"sub,omitempty"`
}

type kubernetes struct {
	Namespace      string           `json:"namespace,omitempty"`
	Node           *named           `json:"node,omitempty"`
	Pod            *named           `json:"pod,omitempty"`
	Secret         *named           `json:"secret,omitempty"`
	ServiceAccount named            `json:"serviceaccount"`
	WarnAfter      *jwt.NumericDate `json:"warnafter,omitempty"`
}

type named struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// audience is written as a list, and may be read as a single string (RFC 7519).
type audience []string

func (a *audience) UnmarshalJSON(text []byte) error { return (*jwt.Audience)(a).UnmarshalJSON(text) }

// These are the resources that tokens depend on.
var (
	serviceAccounts = schema.GroupResource{Resource: "serviceaccounts"}
	secrets         = schema.GroupResource{Resource: "secrets"}
	pods            = schema.GroupResource{Resource: "pods"}
	nodes           = schema.GroupResource{Resource: "nodes"}
)
