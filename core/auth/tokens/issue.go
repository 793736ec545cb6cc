package tokens

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	"github.com/tidwall/gjson"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/objects"
)

// Kind is the kind of token requests.
var Kind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

const (
	defaultSeconds = 60 * 60
	minSeconds     = 10 * 60
	maxSeconds     = 1 << 32
)

// Issued is the result of a token request that is not in the request itself.
type Issued struct {
	// CredentialID identifies the token in logs of what its bearer does. It is not secret.
	CredentialID string
	Warnings     []string
}

// Issue fills in the status of a token request for a service account, and defaults as kube-apiserver does. With dryRun
// it fills in all but the token. Clients see its errors.
func (s *ServiceAccounts) Issue(state *objects.State, namespace, name string, r *authenticationv1.TokenRequest, dryRun bool) (*Issued, error) {
	if r.Name != "" && r.Name != name {
		return nil, status.Invalid(Kind.GroupKind(), name, field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), r.Name, "must match the service account name if specified")})
	}
	account := state.Get(serviceAccounts, namespace, name)
	if account == nil {
		return nil, status.NotFound(serviceAccounts, name)
	}
	if r.UID != "" && string(r.UID) != account.UID {
		return nil, status.Conflict(schema.GroupResource{Group: Kind.Group, Resource: Kind.Kind}, name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", r.UID, account.UID))
	}
	now := time.Now()
	r.APIVersion, r.Kind = Kind.GroupVersion().String(), Kind.Kind
	r.Namespace, r.Name, r.UID, r.CreationTimestamp = namespace, name, types.UID(account.UID), metav1.NewTime(now)
	r.Status = authenticationv1.TokenRequestStatus{}
	if len(r.Spec.Audiences) == 0 {
		r.Spec.Audiences = s.audiences
	}
	if r.Spec.ExpirationSeconds == nil {
		seconds := int64(defaultSeconds)
		r.Spec.ExpirationSeconds = &seconds
	}
	at, seconds := field.NewPath("spec", "expirationSeconds"), *r.Spec.ExpirationSeconds
	switch {
	case seconds < minSeconds:
		return nil, invalid(field.Invalid(at, seconds, "may not specify a duration less than 10 minutes"))
	case seconds > maxSeconds:
		return nil, invalid(field.Invalid(at, seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	says := claims{
		Issuer: s.issuers[0], Subject: serviceaccount.MakeUsername(namespace, name), ID: uuid.NewString(), Audience: r.Spec.Audiences,
		Kubernetes: kubernetes{Namespace: namespace, ServiceAccount: named{name, account.UID}},
	}
	if err := says.bind(state, namespace, name, r.Spec.BoundObjectRef); err != nil {
		return nil, err
	}
	issued := &Issued{CredentialID: tokenjwt.CredentialIDForJTI(says.ID)}
	if most := int64(s.maxExpiration / time.Second); most > 0 && seconds > most {
		issued.Warnings = append(issued.Warnings, fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", seconds, most))
		seconds = most
		r.Spec.ExpirationSeconds = &seconds
	}
	expiry := now.Add(time.Duration(seconds) * time.Second)
	says.IssuedAt, says.NotBefore, says.Expiry = jwt.NewNumericDate(now), jwt.NewNumericDate(now), jwt.NewNumericDate(expiry)
	r.Status.ExpirationTimestamp = metav1.NewTime(expiry)
	text, err := json.Marshal(&says)
	if err != nil {
		return nil, err
	}
	token, err := s.keys.ring.Load().sign(text)
	if err != nil {
		return nil, status.Internal(fmt.Errorf("the token cannot be signed: %w", err))
	}
	if len(token) > maxToken {
		return nil, invalid(field.TooLong(field.NewPath("spec", "audiences"), "", maxToken))
	}
	if !dryRun {
		r.Status.Token = token
	}
	return issued, nil
}

func invalid(err *field.Error) error {
	return status.Invalid(Kind.GroupKind(), "", field.ErrorList{err})
}

// bind binds the token to another object beside its service account.
func (c *claims) bind(state *objects.State, namespace, account string, ref *authenticationv1.BoundObjectReference) error {
	if ref == nil {
		return nil
	}
	k := &c.Kubernetes
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	bound := &named{Name: ref.Name}
	var resource schema.GroupResource
	switch gvk.GroupKind() {
	case schema.GroupKind{Kind: "Secret"}:
		resource, k.Secret = secrets, bound
	case schema.GroupKind{Kind: "Pod"}:
		resource, k.Pod = pods, bound
	case schema.GroupKind{Kind: "Node"}:
		resource, k.Node, namespace = nodes, bound, ""
	default:
		return status.BadRequestf("cannot bind token to object of type %s", gvk.String())
	}
	o := state.Get(resource, namespace, ref.Name)
	if o == nil {
		return status.NotFound(resource, ref.Name)
	}
	if resource == pods {
		if gjson.GetBytes(o.JSON, "spec.serviceAccountName").String() != account {
			return status.BadRequestf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account)
		}
		if node := gjson.GetBytes(o.JSON, "spec.nodeName").String(); node != "" {
			k.Node = &named{Name: node}
			if runs := state.Get(nodes, "", node); runs != nil {
				k.Node.UID = runs.UID
			}
		}
	}
	if ref.UID != "" && string(ref.UID) != o.UID {
		return status.Conflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	bound.UID = o.UID
	return nil
}
