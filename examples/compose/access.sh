# Makes up who may come in, unless that was done before:
#   sh access.sh DIRECTORY-OF-USERS DIRECTORY-OF-TOKEN
set -eu

if [ -s "$1/users" ]; then
    exit 0
fi

secret() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

token=$(secret)
# Prometheus is another user, in a container that has nothing but the token.
umask 022
printf '%s' "$token" > "$2/token"
# `delayline serve` refuses a file that everyone can read.
umask 027
printf 'operator+worker basic operator %s\nviewer bearer prometheus %s\n' "$(secret)" "$token" > "$1/new"
mv "$1/new" "$1/users"
