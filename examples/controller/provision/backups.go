package provision

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// backups sets the status of each Backup: whether its database exists. It needs no Go types: Backups are
// unstructured, and it reads only the metadata of Databases.
type backups struct{ client.Client }

const databaseField = "spec.database"

func (r *backups) register(manager ctrl.Manager) error {
	backup := new(unstructured.Unstructured)
	backup.SetGroupVersionKind(groupVersion.WithKind("Backup"))
	if err := manager.GetFieldIndexer().IndexField(context.Background(), backup, databaseField, func(o client.Object) []string {
		database, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "spec", "database")
		return []string{database}
	}); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(manager).
		For(backup).
		Watches(databaseMetadata(), handler.EnqueueRequestsFromMapFunc(r.backupsOf), builder.OnlyMetadata).
		Complete(r)
}

func databaseMetadata() *metav1.PartialObjectMetadata {
	db := new(metav1.PartialObjectMetadata)
	db.SetGroupVersionKind(groupVersion.WithKind("Database"))
	return db
}

// backupsOf returns a request for each backup of a database.
func (r *backups) backupsOf(ctx context.Context, db client.Object) []ctrl.Request {
	list := new(unstructured.UnstructuredList)
	list.SetGroupVersionKind(groupVersion.WithKind("BackupList"))
	if err := r.List(ctx, list, client.InNamespace(db.GetNamespace()), client.MatchingFields{databaseField: db.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the backups of a database")
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile sets the status of one Backup.
func (r *backups) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	backup := new(unstructured.Unstructured)
	backup.SetGroupVersionKind(groupVersion.WithKind("Backup"))
	if err := r.Get(ctx, request.NamespacedName, backup); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	database, _, _ := unstructured.NestedString(backup.Object, "spec", "database")
	db := databaseMetadata()
	err := r.Get(ctx, types.NamespacedName{Namespace: request.Namespace, Name: database}, db)
	status := map[string]any{"phase": "Complete", "databaseGeneration": db.GetGeneration()}
	if apierrors.IsNotFound(err) {
		status = map[string]any{"phase": "Waiting"}
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if err := unstructured.SetNestedMap(backup.Object, status, "status"); err != nil {
		return ctrl.Result{}, err
	}
	// An update that changes nothing makes no event, so there is no need to compare.
	return ctrl.Result{}, r.Status().Update(ctx, backup)
}
