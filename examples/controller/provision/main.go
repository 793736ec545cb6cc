package provision

import (
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	// name identifies the program in labels, leases, events and finalizers.
	name = "databases.example.com"
	// managedBy is the label of the objects that it creates.
	managedBy = "app.kubernetes.io/managed-by"
	// secretType is the type of the Secrets that it creates.
	secretType = corev1.SecretType("example.com/database")
	// systemNamespace is the namespace of its lease and of the volumes.
	systemNamespace = "data-system"
)

// Main runs the program until it gets a signal or loses its lease.
func Main() {
	ctrl.SetLogger(klog.Background())
	// --kubeconfig is controller-runtime's flag.
	health := flag.String("health-address", "127.0.0.1:0", "where /healthz and /readyz are served")
	flag.Parse()
	if err := run(*health); err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

func run(health string) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, addToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		// The cache has only the ConfigMaps and Secrets of this program.
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Label: labels.SelectorFromSet(labels.Set{managedBy: name})},
			&corev1.Secret{}:    {Field: fields.OneTermEqualSelector("type", string(secretType))},
		}},
		// One replica works and the others wait. A replica that ends releases its lease, so that the next one
		// does not wait until the lease expires.
		LeaderElection:                true,
		LeaderElectionID:              name,
		LeaderElectionNamespace:       systemNamespace,
		LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress:        health,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	if err := manager.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := manager.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	databases := &databases{Client: manager.GetClient(), live: manager.GetAPIReader(), events: manager.GetEventRecorder(name)}
	if err := databases.register(manager); err != nil {
		return err
	}
	backups := &backups{Client: manager.GetClient()}
	if err := backups.register(manager); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
