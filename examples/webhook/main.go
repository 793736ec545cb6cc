// Command webhook is a server of admission webhooks on controller-runtime: one fills in defaults of sites, the other one
// validates them. It runs with any Kubernetes API server. README.md says how to start it.
package main

import "stele.dev/stele/examples/webhook/admit"

func main() { admit.Main() }
