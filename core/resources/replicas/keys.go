package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Keys identify the keys that a replica uses.
type Keys struct {
	// Authority is the SHA-256 of the public key of its certificate authority, in hexadecimal; "" if it has none.
	Authority string
	// Tokens are the IDs of the keys that verify tokens of service accounts, sorted. Signing is the ID of the one that
	// signs; leases do not say it.
	Tokens  []string
	Signing string
	// Audit identifies the key of the hashes in audit lines; "" if it is not known.
	Audit string
	// Server is the SHA-256 of the public key of its own server certificate, in hexadecimal; "" if it has none. Each replica has
	// another one.
	Server string
}

// differ reports whether two replicas use different keys, as far as both say which.
func (k *Keys) differ(other *Keys) bool {
	return k.Authority != other.Authority || !slices.Equal(k.Tokens, other.Tokens) || k.Audit != other.Audit && k.Audit != "" && other.Audit != ""
}

// KeysMap is the name of the ConfigMap in kube-system that says which keys are those of the log. It has no secrets. It
// protects against mistakes, not against attackers.
const KeysMap = "stele-keys"

// The keys of the ConfigMap.
const (
	authorityKey = "authority"
	tokensKey    = "service-account-keys" // one a line
)

// WrongKeysError reports that this replica has other keys than the log.
type WrongKeysError struct {
	// What is the key, and Dir the folder where it is.
	What, Dir string
	// Others are the addresses of live replicas.
	Others []string
}

func (e *WrongKeysError) Error() string {
	from := "another replica of this log"
	if len(e.Others) > 0 {
		from += " (" + strings.Join(e.Others, ", ") + ")"
	}
	return fmt.Sprintf("the %s in %s is not the one of this log: copy ca.crt, ca.key and sa.key to that folder from the folder pki in the data directory of %s, or mount that folder and name it with --pki-dir; "+
		"to change the keys of the log, start once with --replace-lost-keys", e.What, e.Dir, from)
}

// recorded returns the keys of the log, and whether there are any.
func recorded(m *corev1.ConfigMap) Keys {
	k := Keys{Authority: m.Data[authorityKey]}
	k.Tokens = strings.Fields(m.Data[tokensKey])
	return k
}

// data returns the content of the ConfigMap.
func (k *Keys) data() map[string]string {
	data := map[string]string{tokensKey: strings.Join(k.Tokens, "\n")}
	if k.Authority != "" {
		data[authorityKey] = k.Authority
	}
	return data
}

// compare returns an error if a replica with the keys k cannot be a replica of a log with the keys of.
//
// Keys of service accounts are rotated one replica after the other, so it is enough to have one in common.
func (r *Registry) compare(k, of Keys) error {
	wrong := &WrongKeysError{Dir: r.o.KeysDir}
	for _, x := range r.Live() {
		if !x.Self && x.Address != "" {
			wrong.Others = append(wrong.Others, x.Address)
		}
	}
	switch {
	case k.Authority != "" && of.Authority != "" && k.Authority != of.Authority:
		wrong.What = "certificate authority"
	case len(of.Tokens) > 0 && !slices.ContainsFunc(k.Tokens, func(id string) bool { return slices.Contains(of.Tokens, id) }):
		wrong.What = "key for the tokens of service accounts"
	default:
		return nil
	}
	return wrong
}

var configMaps = schema.GroupResource{Resource: "configmaps"}

// CheckKeys returns a [*WrongKeysError] if this replica has other keys than the log at the committer's tip.
func (r *Registry) CheckKeys() error {
	if r.Alone() || r.o.ReplaceKeys {
		return nil
	}
	o := r.o.Committer.Tip().Objects.Get(configMaps, Namespace, KeysMap)
	if o == nil {
		return nil
	}
	m := new(corev1.ConfigMap)
	if err := json.Unmarshal(o.JSON, m); err != nil {
		return err
	}
	return r.compare(r.self().Keys, recorded(m))
}

// RecordKeys makes the keys of this replica those of the log, if the log has none, or if this replica may replace them.
// It returns a [*WrongKeysError] if the log has others. It does nothing as long as no policy is in force.
func (r *Registry) RecordKeys(ctx context.Context) error {
	if r.Alone() || r.o.Committer.Tip().Policy == nil {
		return nil
	}
	own := r.self().Keys
	for {
		_, err := r.maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: KeysMap}, Data: own.data()}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		m, err := r.maps.Get(ctx, KeysMap, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue // somebody has deleted it
		}
		if err != nil {
			return err
		}
		wrong := r.compare(own, recorded(m))
		if wrong == nil || !r.o.ReplaceKeys {
			return wrong
		}
		m.Data = own.data()
		if _, err = r.maps.Update(ctx, m, metav1.UpdateOptions{}); err == nil {
			r.o.Logger.Warn("the keys of this replica are those of the log from now on; replicas with the former ones cannot start")
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
}

// updateKeys notes which keys verify tokens of service accounts, when the live replicas have others than the log says.
// The leader calls it. It records the certificate authority only if none is recorded yet.
func (r *Registry) updateKeys(ctx context.Context) {
	now := Keys{}
	for _, x := range r.Live() {
		now.Tokens = append(now.Tokens, x.Keys.Tokens...)
		if x.Self {
			now.Authority = x.Keys.Authority
		}
	}
	slices.Sort(now.Tokens)
	now.Tokens = slices.Compact(now.Tokens)
	m, err := r.maps.Get(ctx, KeysMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = r.maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: KeysMap}, Data: now.data()}, metav1.CreateOptions{})
	case err == nil:
		if there := m.Data[authorityKey]; there != "" {
			now.Authority = there
		}
		if maps.Equal(m.Data, now.data()) {
			return
		}
		m.Data = now.data()
		_, err = r.maps.Update(ctx, m, metav1.UpdateOptions{})
	}
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		r.o.Logger.Warn("the keys of the log could not be noted; it is tried again", "configmap", KeysMap, "error", err)
	}
}
