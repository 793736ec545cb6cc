package tokens

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstrapsecrets "k8s.io/cluster-bootstrap/util/secrets"
	bootstraptokens "k8s.io/cluster-bootstrap/util/tokens"
	"stele.dev/stele/projections/objects"
)

// errBootstrap does not say whether the token's ID is known. That must not be in a log either.
var errBootstrap = errors.New("the bootstrap token is not valid")

// Bootstrap verifies bootstrap tokens, which are Secrets in kube-system. It implements authenticator.Token, and is
// safe for concurrent use.
type Bootstrap struct {
	// Objects returns the objects at the tip.
	Objects func() *objects.State
}

// AuthenticateToken implements authenticator.Token. It ignores tokens that do not have the form of a bootstrap token.
func (b *Bootstrap) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	id, secret, err := bootstraptokens.ParseToken(token)
	if err != nil {
		return nil, false, nil
	}
	o := b.Objects().Get(secrets, metav1.NamespaceSystem, bootstrapapi.BootstrapTokenSecretPrefix+id)
	if o == nil {
		return nil, false, errBootstrap
	}
	var s corev1.Secret
	if err := json.Unmarshal(o.JSON, &s); err != nil {
		return nil, false, errBootstrap // the error may quote the secret
	}
	data := func(key string) string { return bootstrapsecrets.GetData(&s, key) }
	groups, err := bootstrapsecrets.GetGroups(&s)
	if s.DeletionTimestamp != nil || s.Type != bootstrapapi.SecretTypeBootstrapToken ||
		subtle.ConstantTimeCompare([]byte(data(bootstrapapi.BootstrapTokenSecretKey)), []byte(secret)) != 1 ||
		data(bootstrapapi.BootstrapTokenIDKey) != id || bootstrapsecrets.HasExpired(&s, time.Now()) ||
		data(bootstrapapi.BootstrapTokenUsageAuthentication) != "true" || err != nil {
		return nil, false, errBootstrap
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: bootstrapapi.BootstrapUserPrefix + id, Groups: groups}}, true, nil
}
