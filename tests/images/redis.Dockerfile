# In the place of redis:7-alpine where no registry is reached.
FROM python:3.11-slim
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server && rm -rf /var/lib/apt/lists/*
ENTRYPOINT ["sh", "-c", "exec \"$0\" \"$@\" --protected-mode no"]
