package provision

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// databases creates for each Database a Secret with credentials and a ConfigMap with settings, which the
// Database owns, and a volume in another namespace.
type databases struct {
	client.Client
	live   client.Reader // reads without the cache
	events events.EventRecorder
}

func (r *databases) register(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).
		For(&Database{}).
		Owns(&corev1.Secret{}).
		Owns(&corev1.ConfigMap{}).
		Complete(r)
}

// Reconcile provisions or releases one Database.
func (r *databases) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	db := new(Database)
	if err := r.Get(ctx, request.NamespacedName, db); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !db.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.release(ctx, db)
	}
	if before := db.deepCopy(); controllerutil.AddFinalizer(db, name) {
		// Others write the list of finalizers, too: the lock makes the patch fail if the list has changed.
		if err := r.Patch(ctx, db, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.provision(ctx, db); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, db)
}

func (r *databases) provision(ctx context.Context, db *Database) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: db.Namespace, Name: db.Name + "-credentials"}}
	err := r.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if apierrors.IsNotFound(err) {
		// The cache may not have it yet, and a password must be generated only once.
		err = r.live.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	}
	if apierrors.IsNotFound(err) {
		secret.Labels = map[string]string{managedBy: name}
		secret.Type = secretType
		secret.StringData = map[string]string{"username": "owner", "password": rand.Text()}
		if err := controllerutil.SetControllerReference(db, secret, r.Scheme()); err != nil {
			return err
		}
		err = r.Create(ctx, secret)
	}
	if err != nil {
		return err
	}
	gvk, err := r.GroupVersionKindFor(db)
	if err != nil {
		return err
	}
	owner := applymeta.OwnerReference().WithAPIVersion(gvk.GroupVersion().String()).WithKind(gvk.Kind).WithName(db.Name).WithUID(db.UID).
		WithController(true).WithBlockOwnerDeletion(true)
	settings := applycore.ConfigMap(db.Name+"-settings", db.Namespace).WithOwnerReferences(owner).
		WithData(map[string]string{"engine": db.Spec.Engine, "storageGiB": fmt.Sprint(db.Spec.StorageGiB)})
	if err := r.apply(ctx, settings); err != nil {
		return err
	}
	volume := volumeOf(db)
	return r.apply(ctx, applycore.ConfigMap(volume.Name, volume.Namespace).WithData(map[string]string{"sizeGiB": fmt.Sprint(db.Spec.StorageGiB)}))
}

// apply applies a ConfigMap. It takes over the fields that it sets from other field managers, and leaves all
// other fields alone.
func (r *databases) apply(ctx context.Context, c *applycore.ConfigMapApplyConfiguration) error {
	return r.Apply(ctx, c.WithLabels(map[string]string{managedBy: name}), client.FieldOwner(name), client.ForceOwnership)
}

// volumeOf returns the volume of a database. The database cannot own it, as owners must be in the same
// namespace, so a finalizer ensures that it is deleted.
func volumeOf(db *Database) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "volume-" + string(db.UID)}}
}

func (r *databases) report(ctx context.Context, db *Database) error {
	before := db.deepCopy()
	wasReady := db.Status.Phase == "Ready"
	db.Status.Phase = "Ready"
	db.Status.Endpoint = fmt.Sprintf("%s.%s.example.com", db.Name, db.Namespace)
	db.Status.SecretName = db.Name + "-credentials"
	meta.SetStatusCondition(&db.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, ObservedGeneration: db.Generation, Reason: "Provisioned", Message: "the database accepts connections",
	})
	if err := r.Status().Patch(ctx, db, client.MergeFrom(before)); err != nil {
		return err
	}
	if !wasReady {
		r.events.Eventf(db, nil, corev1.EventTypeNormal, "Provisioned", "Provision", "%s with %d GiB at %s", db.Spec.Engine, db.Spec.StorageGiB, db.Status.Endpoint)
	}
	return nil
}

func (r *databases) release(ctx context.Context, db *Database) error {
	if err := r.Delete(ctx, volumeOf(db)); client.IgnoreNotFound(err) != nil {
		return err
	}
	before := db.deepCopy()
	if !controllerutil.RemoveFinalizer(db, name) {
		return nil
	}
	r.events.Eventf(db, nil, corev1.EventTypeNormal, "Released", "Release", "the volume is deleted")
	return client.IgnoreNotFound(r.Patch(ctx, db, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}
