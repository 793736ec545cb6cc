package importing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/importing"
	kinds "stele.dev/stele/schemas/brought"
)

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// resources are what is read from a cluster, in the first of the versions that it serves. Servers have no audit policy to read.
var resources = []struct {
	section  string
	of       schema.GroupVersionResource
	versions []string // older ones
}{
	{"crds", crds, nil},
	{"rbac", schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, nil},
	{"rbac", schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}, nil},
	{"rbac", schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}, nil},
	{"rbac", schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}, nil},
	{"flow", schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "prioritylevelconfigurations"}, nil},
	{"flow", schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas"}, nil},
	{"admission", schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}, nil},
	{"admission", schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"}, nil},
	{"admission", schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicies"}, []string{"v1beta1", "v1alpha1"}},
	{"admission", schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicybindings"}, []string{"v1beta1", "v1alpha1"}},
	{"admission", schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}, nil},
	{"admission", schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}, nil},
}

// fromCluster reads the objects of a cluster, one document for each resource. A resource that the cluster does not serve has none.
func fromCluster(ctx context.Context, kubeconfig, contextName string, sections []string) ([]importing.Document, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: contextName}).ClientConfig()
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	var documents []importing.Document
	for _, r := range resources {
		if len(sections) > 0 && !slices.Contains(sections, r.section) {
			continue
		}
		list, err := client.Resource(r.of).List(ctx, metav1.ListOptions{})
		for _, older := range r.versions {
			if apierrors.IsNotFound(err) {
				list, err = client.Resource(r.of.GroupResource().WithVersion(older)).List(ctx, metav1.ListOptions{})
			}
		}
		if apierrors.IsNotFound(err) || err == nil && len(list.Items) == 0 {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s of the cluster: %w", r.of.GroupResource(), err)
		}
		document, err := documentOf("cluster/"+r.of.GroupResource().String(), list)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	if len(documents) == 0 {
		return nil, errors.New("the cluster has nothing to import")
	}
	return documents, nil
}

// brought reads what clients have brought to a stele server through the API, and what the bundle does not have: definitions, roles and bindings, webhooks.
func brought(ctx context.Context, flags *client.Flags) ([]importing.Document, error) {
	config, _, err := flags.Config()
	if err != nil {
		return nil, err
	}
	server, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	var documents []importing.Document
	for _, r := range resources {
		if r.of != crds && kinds.Of(r.of.GroupResource()) == nil {
			continue // clients cannot bring them
		}
		list, err := server.Resource(r.of).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("read the %s of the server: %w", r.of.Resource, err)
		}
		list.Items = slices.DeleteFunc(list.Items, func(o unstructured.Unstructured) bool {
			return o.GetAnnotations()[policy.RuleAnnotation] != "" || o.GetDeletionTimestamp() != nil
		})
		if len(list.Items) == 0 {
			continue
		}
		document, err := documentOf("server/"+r.of.GroupResource().String(), list)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	if len(documents) == 0 {
		return nil, errors.New("no client has brought anything to the server that its policy does not have")
	}
	return documents, nil
}

// documentOf returns a document of objects, without what the server says about them.
func documentOf(name string, list *unstructured.UnstructuredList) (importing.Document, error) {
	for i := range list.Items {
		list.Items[i].SetManagedFields(nil)
		delete(list.Items[i].Object, "status")
	}
	data, err := yaml.Marshal(list.UnstructuredContent())
	return importing.Document{Name: name, Data: data}, err
}
