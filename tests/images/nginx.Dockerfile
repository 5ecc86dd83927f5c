# In the place of nginx:1.27-alpine where no registry is reached: Debian's testing has the first nginx with `resolve`. Parts
# of it replace those of the base, whatever their packages say of each other.
FROM python:3.11-slim
RUN echo "deb http://deb.debian.org/debian forky main" >/etc/apt/sources.list.d/forky.list \
 && apt-get -o Acquire::Check-Valid-Until=false update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      -o Dpkg::Options::=--force-overwrite nginx-light \
 && rm -rf /var/lib/apt/lists/*
CMD ["nginx", "-g", "daemon off;"]
