// Package console is `stele console`: a page in a browser on the user's machine that shows what the log of a control plane
// knows.
//
// # Who may read
//
// The program serves the page on 127.0.0.1, and sends what the page asks for to the server with the credentials of the
// kubeconfig. The page never has them. Other users of the machine, other pages in the same browser, and names that lead to
// 127.0.0.1 get nothing: guard.go has the checks.
//
// # What is sent to the server
//
// Reads, and the few creates that only ask: proxy.go lists them. All others get 405, so that nothing that runs in the page can
// write.
//
// # The page
//
// The folder page has the page as it is served: modules of JavaScript without a build step. It shows all text as text, and
// the Content-Security-Policy lets it load nothing but these files.
package console
