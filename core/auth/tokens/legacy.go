package tokens

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/projections/objects"
)

// LegacyIssuer is the issuer of tokens in Secrets. They do not expire.
const LegacyIssuer = "kubernetes/serviceaccount"

// InvalidSince is the label of a Secret whose token is refused while the label is there.
const InvalidSince = "kubernetes.io/legacy-token-invalid-since"

// legacyClaims are the claims of a token in a Secret, as Kubernetes writes them.
type legacyClaims struct {
	Audience  audience `json:"aud,omitempty"`
	Issuer    string   `json:"iss"`
	ID        string   `json:"jti,omitempty"`
	Namespace string   `json:"kubernetes.io/serviceaccount/namespace"`
	Secret    string   `json:"kubernetes.io/serviceaccount/secret.name"`
	Account   string   `json:"kubernetes.io/serviceaccount/service-account.name"`
	UID       string   `json:"kubernetes.io/serviceaccount/service-account.uid"`
	Subject   string   `json:"sub"`
}

// InSecret issues the token of a service account for a Secret in its namespace. The token is valid as long as the
// Secret contains it and the account with this UID exists. Unlike kube-apiserver's, every token is different, so a
// token that was removed from a Secret never becomes valid again.
func (s *ServiceAccounts) InSecret(namespace, account, uid, secret string) (string, error) {
	text, err := json.Marshal(&legacyClaims{
		Issuer: LegacyIssuer, ID: uuid.NewString(), Subject: serviceaccount.MakeUsername(namespace, account),
		Namespace: namespace, Secret: secret, Account: account, UID: uid,
	})
	if err != nil {
		return "", err
	}
	return s.keys.ring.Load().sign(text)
}

// verified checks the claims, without stored objects. Claims without an audience are for the API.
func (c *legacyClaims) verified(key string, api authenticator.Audiences) (*verified, error) {
	if c.Namespace == "" || c.Secret == "" || c.Account == "" || c.UID == "" || c.Subject != serviceaccount.MakeUsername(c.Namespace, c.Account) {
		return nil, errClaims
	}
	v := &verified{key: key, audiences: api, endless: true}
	if len(c.Audience) > 0 {
		v.audiences = authenticator.Audiences(c.Audience)
	}
	v.needs = []*needed{
		{GroupResource: secrets, namespace: c.Namespace, named: named{Name: c.Secret}, whichever: true, also: holdsToken},
		{GroupResource: serviceAccounts, namespace: c.Namespace, named: named{c.Account, c.UID}, also: notDeleting},
	}
	is := serviceaccount.ServiceAccountInfo{Namespace: c.Namespace, Name: c.Account, UID: c.UID}
	v.user = is.UserInfo()
	return v, nil
}

// notDeleting rejects an object that is being deleted. As in kube-apiserver, a token without expiry ends at once, without a
// grace period.
func notDeleting(o *objects.Object, _ string) error {
	if gjson.GetBytes(o.JSON, "metadata.deletionTimestamp").Exists() {
		return reject(authn.Revoked, "what it depends on is being deleted: %s/%s", o.Namespace, o.Name)
	}
	return nil
}

// holdsToken rejects a Secret that does not contain the token, or that is labeled as invalid. As in kube-apiserver, the
// type of the Secret does not matter.
func holdsToken(o *objects.Object, token string) error {
	if err := notDeleting(o, token); err != nil {
		return err
	}
	held, err := base64.StdEncoding.DecodeString(gjson.GetBytes(o.JSON, "data."+corev1.ServiceAccountTokenKey).String())
	switch {
	case err != nil || subtle.ConstantTimeCompare(held, []byte(token)) != 1:
		return reject(authn.Revoked, "its Secret %s/%s holds another token, or none", o.Namespace, o.Name)
	case gjson.GetBytes(o.JSON, `metadata.labels.kubernetes\.io/legacy-token-invalid-since`).String() != "":
		return reject(authn.Revoked, "its Secret %s/%s has the label %s", o.Namespace, o.Name, InvalidSince)
	}
	return nil
}
