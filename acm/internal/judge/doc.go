// Package judge runs one application's decision loop: it takes the operator's request, orders the
// waiting instances, and for each checks the machinery (bundle, facts), derives the question, asks
// the policy, combines the outcome, reserves an approval and logs. One request at a time per
// application. Every path that is not an explicit approval ends in defer or deny.
package judge
